/** The log of a sandbox in words. A newer service may have events and fields that this page does not know. */
import type { AuditEntry } from '../../../../sdk/src/index.ts';
import {
  formatBytes,
  formatDuration,
  formatImage,
  formatMiB,
  formatMoment,
  formatNumber,
} from '../../ui/format.ts';
import { quote, say, toText, when, type Sentence, type Value } from './sentence.ts';

type Data = Readonly<Record<string, unknown>>;

const ENDS: Readonly<Record<string, string>> = {
  requested: 'on request',
  idle_timeout: 'as it was idle',
  max_lifetime: 'at the end of its longest lifetime',
  expires_at: 'at the time that was set',
  guest_shutdown: 'as its system shut down',
  guest_panic: 'as its kernel crashed',
  vm_lost: 'as its virtual machine was lost',
  create_failed: 'as it could not be created',
  control_restarted: 'as the service restarted',
};

/** As in docs/reference/audit.md. */
const REFUSALS: Readonly<Record<string, string>> = {
  denied_by_rule: 'a deny rule matches',
  not_allowed: 'no allow rule matches',
  name_missing: 'the address alone is not allowed, and the connection showed no name',
  name_hidden: 'the name is hidden, missing or unreadable',
  name_invalid: 'the shown name is not a host name',
  name_late: 'the name was shown too late',
  name_not_resolved: 'the name was not resolved to this address',
  private_address: 'the address is private',
  host_address: 'the address belongs to the host or to another sandbox',
  reserved_address: 'the address is reserved',
  too_many_connections: 'there are too many connections',
  protocol_not_allowed: 'the policy allows only TCP and DNS queries',
  source_not_own: 'the source address is not that of the sandbox',
};

const SENTENCES: Readonly<Record<string, (data: Data) => Sentence>> = {
  'sandbox.created': ({ image, vcpus, mem_mib, snapshot_id, parent, network }) =>
    say`Created from ${
      snapshot_id === undefined
        ? parent === undefined
          ? say`the image ${quote(shortImage(image))}`
          : say`its parent ${quote(parent)}`
        : say`the snapshot ${quote(snapshot_id)}`
    }, with ${count(vcpus, 'CPU')} and ${mebibytes(mem_mib)}${when(network !== undefined, say`; its network is restricted`)}`,
  'sandbox.forked': ({ child }) => say`Forked: the child is ${quote(child)}`,
  'sandbox.snapshot': ({ snapshot_id }) => say`Saved as the snapshot ${quote(snapshot_id)}`,
  'sandbox.rolled_back': ({ snapshot_id }) => say`Rolled back to the snapshot ${quote(snapshot_id)}`,
  'sandbox.hibernated': () => say`Hibernated`,
  'sandbox.resumed': () => say`Resumed`,
  'sandbox.destroyed': (data) => say`Destroyed ${ending(data)}`,
  'sandbox.failed': (data) => say`Failed ${ending(data)}`,
  'settings.changed': (data) => say`Changed ${listNames(Object.keys(data))} of the sandbox`,
  'exec.start': ({ command }) => say`Ran ${quote(command)}`,
  'exec.exit': ({ command, exit_code, duration_ms }) =>
    say`${exit(exit_code)}${after(duration_ms)}: ${quote(command)}`,
  'terminal.opened': ({ command }) =>
    say`Opened a terminal${when(command !== undefined, say` with ${quote(command)}`)}`,
  'terminal.closed': ({ exit_code, duration_ms }) => say`${exit(exit_code)}${after(duration_ms)}: a terminal`,
  'ssh.opened': ({ user }) =>
    say`Opened an SSH connection${when(user !== undefined, say` as ${quote(user)}`)}`,
  'ssh.closed': ({ exit_code, duration_ms }) =>
    say`${exit(exit_code)}${after(duration_ms)}: an SSH connection`,
  'file.upload': ({ path, size, archive, complete }) =>
    say`Uploaded ${when(archive !== undefined, say`a directory to `)}${quote(path)}${sized(size)}${partly(complete)}`,
  'file.download': ({ path, size, archive }) =>
    say`Downloaded ${when(archive !== undefined, say`the directory `)}${quote(path)}${sized(size)}`,
  'file.link': ({ path, method, expires_at }) =>
    say`Made a link that ${method === 'GET' ? 'downloads' : 'uploads'} ${quote(path)}${when(
      typeof expires_at === 'string',
      say`, until ${moment(expires_at)}`,
    )}`,
  'file.mkdir': ({ path, complete }) => say`Made the directory ${quote(path)}${partly(complete)}`,
  'file.move': ({ path, to, complete }) => say`Moved ${quote(path)} to ${quote(to)}${partly(complete)}`,
  'file.remove': ({ path, recursive, complete }) =>
    say`Removed ${quote(path)}${within(recursive)}${partly(complete)}`,
  'file.chmod': ({ path, mode, recursive, complete }) =>
    say`Set the mode of ${quote(path)}${within(recursive)} to ${quote(mode)}${partly(complete)}`,
  'file.chown': ({ path, user, recursive, complete }) =>
    say`Gave ${quote(path)}${within(recursive)} to the user ${quote(user)}${partly(complete)}`,
  'network.blocked': ({ domain, ip, port, reason, count: times }) =>
    say`Refused ${times === undefined || times === 1 ? 'a connection' : count(times, 'connection')} to ${quote(
      `${toText(domain ?? ip ?? 'an unknown address')}${port === undefined ? '' : `:${toText(port)}`}`,
    )}: ${lookUp(REFUSALS, reason)}`,
  'policy.changed': ({ policy, default: verdict, rules }) =>
    say`Set the network policy ${quote(policy)}: ${count(rules, 'rule')}, everything else is ${
      verdict === 'deny' ? 'refused' : 'allowed'
    }`,
  'credential.proxied': ({ service, method, path, status }) =>
    say`Signed ${quote(method)} ${quote(path)} for ${quote(service)}: status ${quote(status)}`,
  'credentials.changed': ({ credentials }) => say`Granted ${services(credentials)}`,
  'credentials.rotated': ({ credentials }) => say`Uses new values of ${services(credentials)}`,
  'disk.attached': ({ disk, recovered }) =>
    say`Attached the disk ${quote(disk)}${when(recovered === true, say`; its latest writes were lost`)}`,
  'disk.detached': ({ disk }) => say`Detached the disk ${quote(disk)}`,
  'disk.snapshot': ({ disk, snapshot }) =>
    say`Saved the disk ${quote(disk)} as its snapshot ${quote(snapshot)}`,
};

/** Describes an entry. */
export function describeSandboxEntry({ event, data }: Pick<AuditEntry, 'event' | 'data'>): Sentence {
  const describe = Object.hasOwn(SENTENCES, event) ? SENTENCES[event] : undefined;
  return describe === undefined ? say`${quote(event)} ${quote(data)}` : describe(data);
}

function ending({ reason, uptime_ms }: Data): Sentence {
  return say`${lookUp(ENDS, reason)}${after(uptime_ms)}`;
}

/** Returns the words for a value; the value itself if the page has none. */
function lookUp(words: Readonly<Record<string, string>>, value: unknown): string | Value {
  const known = typeof value === 'string' && Object.hasOwn(words, value) ? words[value] : undefined;
  return known ?? quote(value);
}

function exit(code: unknown): Sentence {
  return code === null || code === undefined ? ['No exit code'] : say`Exit code ${quote(code)}`;
}

function after(ms: unknown): Sentence {
  return typeof ms === 'number' ? say` after ${formatDuration(ms)}` : [];
}

function sized(bytes: unknown): Sentence {
  return typeof bytes === 'number' ? say` (${formatBytes(bytes)})` : [];
}

function shortImage(image: unknown): unknown {
  return typeof image === 'string' ? formatImage(image) : image;
}

function mebibytes(size: unknown): string {
  return typeof size === 'number' ? formatMiB(size) : 'unknown memory';
}

function within(recursive: unknown): Sentence {
  return when(recursive === true, say` and everything in it`);
}

function partly(complete: unknown): Sentence {
  return when(complete === false, say`; it failed, and may be done in part`);
}

function moment(time: unknown): string {
  const ms = typeof time === 'string' ? Date.parse(time) : Number.NaN;
  return Number.isNaN(ms) ? 'an unknown time' : formatMoment(ms);
}

function count(number: unknown, noun: string): string {
  if (typeof number !== 'number') return `an unknown number of ${noun}s`;
  return `${formatNumber(number)} ${noun}${number === 1 ? '' : 's'}`;
}

function listNames(names: readonly string[]): Sentence {
  if (names.length === 0) return ['nothing'];
  return names.flatMap((name, index) => [
    ...(index === 0 ? [] : [index === names.length - 1 ? ' and ' : ', ']),
    quote(name),
  ]);
}

function services(credentials: unknown): Sentence {
  if (!Array.isArray(credentials) || credentials.length === 0) return ['no credentials'];
  return say`credentials for ${listNames(credentials.map((grant: unknown) => serviceOf(grant)))}`;
}

function serviceOf(grant: unknown): string {
  return typeof grant === 'object' && grant !== null && 'service' in grant
    ? String(grant.service)
    : 'unknown';
}
