/**
 * Options that make OpenSSH reach a sandbox through the API:
 *
 *   ssh ─► ProxyCommand: coppice ssh-proxy ─► WebSocket of the API ─► SSH server in the sandbox
 *    └───► KnownHostsCommand: coppice ssh-host-key ─► the sandbox's public key, over the same API
 *
 * The key is asked for each time, so no file of known hosts goes stale when a sandbox is copied or made again.
 */
import { UsageError } from '../output/failure.ts';
import type { GlobalOptions } from '../profiles/connection.ts';
import { quote } from '../attach/command-line.ts';

/** SSH insists on a user name. This one means the USER of the image, any other a user in the sandbox. */
export const DEFAULT_USER = 'default';
/** Ends the names by which SSH calls sandboxes, so that they are not mixed up with other hosts. */
const HOST_SUFFIX = '.coppice';

/** How this program is called again: SSH runs it without the shell's PATH. */
export interface Invocation {
  program: readonly string[];
  global: Pick<GlobalOptions, 'profile' | 'url'>;
}

export function readInvocation({ profile, url }: GlobalOptions): Invocation {
  const global = {
    ...(profile === undefined ? {} : { profile }),
    ...(url === undefined ? {} : { url }),
  };
  return { program: [process.execPath, ...process.argv.slice(1, 2)], global };
}

/** Returns names and values, as in a configuration file of SSH. `host` and `user` may be tokens of SSH. */
export function buildSshOptions(
  { program, global }: Invocation,
  { host, user }: { host: string; user: string },
): [name: string, value: string][] {
  const words = [
    ...program,
    ...Object.entries(global).flatMap(([name, value]) => [`--${name}`, value ?? '']),
  ];
  for (const word of words) requirePlain(word);
  const forShell = words.map((word) => quote(word).replaceAll('%', '%%')).join(' ');
  const forSsh = words.map((word) => `"${word.replaceAll('%', '%%')}"`).join(' ');
  return [
    ['ProxyCommand', `${forShell} ssh-proxy --user ${user} -- ${host}`],
    ['KnownHostsCommand', `${forSsh} ssh-host-key -- ${host}`],
    ['UserKnownHostsFile', 'none'],
    ['GlobalKnownHostsFile', 'none'],
    ['StrictHostKeyChecking', 'yes'],
    // With a fixed algorithm, SSH does not ask for the key a second time to choose one.
    ['HostKeyAlgorithms', 'ssh-ed25519'],
    ['CheckHostIP', 'no'],
    ['PreferredAuthentications', 'none'],
    ['ForwardAgent', 'no'],
    ['ForwardX11', 'no'],
    ['ServerAliveInterval', '30'],
  ];
}

/** Words of SSH's own configuration have no escape for these. */
function requirePlain(word: string): void {
  if (!/["\\\n\r]/u.test(word)) return;
  throw new UsageError(
    `SSH cannot call a program with quotes or backslashes in its path or options, such as ${word}: install coppice elsewhere`,
  );
}

/** Returns the block of a configuration file for all sandboxes. */
export function buildSshConfig(invocation: Invocation): string {
  const options = buildSshOptions(invocation, { host: '%n', user: '%r' });
  const lines = [['User', DEFAULT_USER], ...options].map(([name, value]) => `  ${name} ${value}\n`);
  return `Host *${HOST_SUFFIX}\n${lines.join('')}`;
}

/** Returns the sandbox that SSH means by a host. */
export function parseHost(host: string): string {
  return host.endsWith(HOST_SUFFIX) ? host.slice(0, -HOST_SUFFIX.length) : host;
}

/** Returns the user that SSH asks for; undefined is the image's. */
export function parseUser(user: string | undefined): string | undefined {
  return user === DEFAULT_USER ? undefined : user;
}

const HOST_KEY = /^ssh-ed25519 [A-Za-z0-9+/]{68}$/u;

/** Returns the line for SSH. It fits every name: SSH asks for one host. Throws for text that is not a key. */
export function buildKnownHost(hostKey: string): string {
  if (!HOST_KEY.test(hostKey)) throw new Error('the service sent a host key that is not valid');
  return `* ${hostKey}`;
}
