/**
 * Chooses the service and the key. Both always come from one place, so that a key is sent only to the service that it is for:
 *
 *   --profile ─► SANDBOX_API_KEY, with --url or SANDBOX_BASE_URL ─► the profile of --url or SANDBOX_BASE_URL ─► the current profile
 */
import { WebSocket } from 'ws';
import { Coppice, DEFAULT_BASE_URL, type WebSocketConstructor } from '../../../sdk/src/index.ts';
import { Failure, UsageError } from '../output/failure.ts';
import { readProfiles, type Profile, type ProfileFile } from './profile-file.ts';

/** Options of every command. */
export interface GlobalOptions {
  profile?: string;
  url?: string;
  json?: boolean;
}

/** Where a key comes from. Without an address, the client chooses it as its own documentation says. */
export interface Source {
  key: string;
  url: string | undefined;
}

/** Settings of the client that a command may change. */
export interface Limits {
  timeoutMs?: number;
  maxRetries?: number;
}

/** Opens the client of the chosen service. Throws Failure if there is no key. */
export function connect(options: GlobalOptions, limits: Limits = {}): Coppice {
  return openClient(chooseSource(options, process.env, readProfiles), limits);
}

/**
 * Opens a client. The WebSocket of `ws` makes a guest wait while its output is not read, and Node.js 20 has no other.
 */
export function openClient({ key, url }: Source, limits: Limits = {}): Coppice {
  return new Coppice({
    apiKey: key,
    baseUrl: url,
    WebSocket: WebSocket as unknown as WebSocketConstructor,
    ...limits,
  });
}

export function chooseSource(
  { profile, url }: GlobalOptions,
  env: NodeJS.ProcessEnv,
  read: () => ProfileFile,
): Source {
  if (profile !== undefined) {
    if (url !== undefined) throw new UsageError('--profile names the address, too: leave out --url');
    return toSource(getProfile(read(), profile));
  }
  const address = chooseAddress(url, env);
  const key = env['SANDBOX_API_KEY'] ?? '';
  if (key !== '') return { key, url };
  const file = read();
  if (address !== '') return toSource(getProfileOf(file, address));
  if (file.current !== null) return toSource(getProfile(file, file.current));
  throw new Failure(
    file.profiles.size === 0
      ? 'there is no key yet: run "coppice login", or set SANDBOX_API_KEY'
      : 'no profile is chosen: run "coppice use <name>" ("coppice profiles" lists them)',
  );
}

/**
 * Returns the address that the user names. Empty if there is none. Throws UsageError for one that is not valid, without the text:
 * it may include a password.
 */
export function chooseAddress(url: string | undefined, env: NodeJS.ProcessEnv): string {
  const [name, text] =
    url === undefined ? ['SANDBOX_BASE_URL', env['SANDBOX_BASE_URL'] ?? ''] : ['--url', url];
  if (text === '' && url === undefined) return '';
  const parsed = URL.canParse(text) ? new URL(text) : undefined;
  if (parsed === undefined || !/^https?:$/u.test(parsed.protocol))
    throw new UsageError(`${name} must be an http or https address such as ${DEFAULT_BASE_URL}`);
  if (parsed.username !== '' || parsed.password !== '' || parsed.search !== '' || parsed.hash !== '')
    throw new UsageError(`${name} must not contain a user, a password, a query or a fragment`);
  return text;
}

export function getProfile({ profiles }: ProfileFile, name: string): Profile {
  const found = profiles.get(name);
  if (found !== undefined) return found;
  throw new Failure(
    `there is no profile "${name}": "coppice profiles" lists them, "coppice login --profile ${name}" adds it`,
  );
}

/** Returns the current profile if it is of this address, else the first that is. */
function getProfileOf({ current, profiles }: ProfileFile, address: string): Profile {
  const wanted = normalizeUrl(address);
  const ordered = [...profiles].sort(([a], [b]) => Number(b === current) - Number(a === current));
  const found = ordered.find(([, { url }]) => normalizeUrl(url) === wanted);
  if (found !== undefined) return found[1];
  throw new Failure(
    `there is no key for ${address}: run "coppice login --url ${address}", or set SANDBOX_API_KEY`,
  );
}

function normalizeUrl(text: string): string {
  return URL.canParse(text) ? new URL(text).href.replace(/\/+$/u, '') : text;
}

function toSource({ key, url }: Profile): Source {
  return { key, url };
}
