/**
 * The file with the profiles: addresses and keys of services. It is for its owner alone. A new version replaces the old
 * one at once, so a crash leaves one or the other.
 */
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Failure } from '../output/failure.ts';

/** A service, and the key for it. */
export interface Profile {
  url: string;
  key: string;
}

export interface ProfileFile {
  /** Name of the profile that is used if none is named. Null if there is none. */
  current: string | null;
  profiles: Map<string, Profile>;
}

const PRIVATE_FILE = 0o600;
const PRIVATE_DIRECTORY = 0o700;
const OTHERS = 0o077;
const MAX_BYTES = 1 << 20;
const VERSION = 1;
/** A change takes milliseconds. */
const STALE_MS = 10_000;
const LOCK_DEADLINE_MS = 15_000;
const LOCK_POLL_MS = 20;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/u;

/** Returns the path of the file: in XDG_CONFIG_HOME, which the specification ignores unless it is absolute. */
export function profilePath(env: NodeJS.ProcessEnv = process.env): string {
  const configured = env['XDG_CONFIG_HOME'] ?? '';
  const directory = isAbsolute(configured) ? configured : join(env['HOME'] ?? homedir(), '.config');
  return join(directory, 'coppice', 'config.json');
}

/** Reads the profiles. Throws Failure for a file that other users may read, or that is damaged. */
export function readProfiles(path = profilePath()): ProfileFile {
  const text = readPrivate(path);
  if (text === undefined) return { current: null, profiles: new Map() };
  try {
    return parseProfiles(JSON.parse(text));
  } catch (error) {
    // The message of JSON.parse would include a part of the file, and so of a key.
    const why = error instanceof Failure ? error.message : 'it is not JSON';
    throw new Failure(`${path} cannot be used: ${why}; correct it, or remove it and run "coppice login"`);
  }
}

/**
 * Reads the profiles, and writes what `change` makes of them, readable by the owner alone. Returns that. Of several processes
 * one at a time does so: the file with the next version is also the lock.
 */
export async function changeProfiles(
  change: (file: ProfileFile) => ProfileFile,
  path = profilePath(),
  deadlineMs = LOCK_DEADLINE_MS,
): Promise<ProfileFile> {
  mkdirSync(dirname(path), { recursive: true, mode: PRIVATE_DIRECTORY });
  const next = `${path}.new`;
  const file = await openNext(next, deadlineMs);
  try {
    let changed: ProfileFile;
    try {
      changed = change(readProfiles(path));
      fchmodSync(file, PRIVATE_FILE);
      writeFileSync(file, formatProfiles(changed));
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(next, path);
    return changed;
  } catch (error) {
    rmSync(next, { force: true });
    throw error;
  }
}

/** Creates the file with the next version, once no other process has it. One that was killed leaves it, with keys. */
async function openNext(next: string, deadlineMs: number): Promise<number> {
  const endsAtMs = performance.now() + deadlineMs;
  for (;;) {
    try {
      return openSync(next, 'wx', PRIVATE_FILE);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const found = statSync(next, { throwIfNoEntry: false });
    if (found !== undefined && Date.now() - found.mtimeMs > STALE_MS) rmSync(next, { force: true });
    else if (performance.now() > endsAtMs)
      throw new Failure(
        `another coppice is changing the profiles: try again, or remove ${next} if none runs`,
      );
    else await sleep(LOCK_POLL_MS);
  }
}

function formatProfiles({ current, profiles }: ProfileFile): string {
  const content = { version: VERSION, current, profiles: Object.fromEntries(profiles) };
  return `${JSON.stringify(content, undefined, 2)}\n`;
}

/** Throws Failure for a name that is not 1–64 letters, digits, dots, dashes and underscores. */
export function requireProfileName(name: string): string {
  if (NAME.test(name)) return name;
  throw new Failure(
    '--profile: a name has 1–64 letters, digits, dots, dashes and underscores, and begins with a letter or a digit',
  );
}

/** Reads a file that belongs to this user alone. Returns undefined if there is none. */
function readPrivate(path: string): string | undefined {
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new Failure(`${path} cannot be read: ${(error as Error).message}`);
  }
  try {
    const { mode, uid, size } = fstatSync(file);
    if ((mode & OTHERS) !== 0)
      throw new Failure(`${path} holds keys, and other users may read it: run chmod 600 ${path}`);
    const user = process.getuid?.();
    if (user !== undefined && user !== 0 && uid !== user)
      throw new Failure(`${path} belongs to another user: remove it and run "coppice login"`);
    if (size > MAX_BYTES)
      throw new Failure(`${path} is larger than 1 MiB: remove it and run "coppice login"`);
    return readFileSync(file, 'utf8');
  } finally {
    closeSync(file);
  }
}

function parseProfiles(value: unknown): ProfileFile {
  const { version, current, profiles } = readObject(value, 'it');
  if (version !== VERSION) throw new Failure(`its version is not ${VERSION}`);
  const parsed = new Map(
    Object.entries(readObject(profiles, 'profiles')).map(([name, profile]) => {
      const { url, key } = readObject(profile, `profile ${name}`);
      if (typeof url !== 'string' || typeof key !== 'string')
        throw new Failure(`profile ${name} has no url or no key`);
      return [name, { url, key }];
    }),
  );
  return { current: typeof current === 'string' && parsed.has(current) ? current : null, profiles: parsed };
}

function readObject(value: unknown, what: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw new Failure(`${what} is not an object`);
}
