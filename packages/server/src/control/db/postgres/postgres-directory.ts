/** The data directory of the service's own PostgreSQL: created once, bound to the major version that created it. */
import { execFile } from 'node:child_process';
import { chown, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Account } from './postgres-account.ts';
import { stretched } from '../../../lib/waiting/deadline.ts';

export const DATABASE_USER = 'coppice';

const INITDB_DEADLINE_MS = 120_000;
const VERSION_DEADLINE_MS = 10_000;
const MAP_NAME = 'coppice';
const run = promisify(execFile);

export interface PostgresDirectory {
  directory: string;
  bin: string;
  account: Account;
}

export class PostgresMajorError extends Error {
  constructor({ directory, bin }: PostgresDirectory, { made, found }: { made: string; found: string }) {
    super(
      `${directory} was made by PostgreSQL ${made}, but ${bin} is ${found}: set COPPICE_POSTGRES_BIN to the programs ` +
        `of PostgreSQL ${made} (such as /usr/lib/postgresql/${made}/bin; "npm run doctor" looks for them) and run ` +
        `"npm run setup" to continue with it; "coppice admin backup" with ${made} and "coppice admin restore" with ${found} move ` +
        'the data (docs/guides/backup.md)',
    );
    this.name = 'PostgresMajorError';
  }
}

export class PostgresMissingError extends Error {
  constructor(bin: string, cause: unknown) {
    super(
      `there is no PostgreSQL in ${bin}: "npm run setup" as root installs it, or finds another that is installed`,
      { cause },
    );
    this.name = 'PostgresMissingError';
  }
}

/** Creates the data directory if it does not exist. Removes one that an earlier attempt left incomplete. */
export async function ensurePostgresDirectory(options: PostgresDirectory): Promise<void> {
  const found = await findVersion(options.bin);
  const made = await readMajor(options.directory);
  if (made === undefined) await initialize(options);
  else if (made !== found) throw new PostgresMajorError(options, { made, found });
  await writeAccessRules(options);
}

async function readMajor(directory: string): Promise<string | undefined> {
  try {
    return (await readFile(join(directory, 'PG_VERSION'), 'utf8')).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Returns the major version of the programs. */
async function findVersion(bin: string): Promise<string> {
  try {
    const { stdout } = await run(join(bin, 'postgres'), ['--version'], { timeout: VERSION_DEADLINE_MS });
    return /(\d+)(?:\.\d+|devel|beta|rc)/.exec(stdout)?.[1] ?? stdout.trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw new PostgresMissingError(bin, error);
    throw error;
  }
}

/** Runs initdb under a temporary name. The final name appears only when all is on disk. */
async function initialize({ directory, bin, account }: PostgresDirectory): Promise<void> {
  const draft = `${directory}.new`;
  await rm(draft, { recursive: true, force: true });
  await mkdir(draft, { mode: 0o700 });
  await giveTo(draft, account);
  const options = [
    '--encoding=UTF8',
    '--locale=C',
    '--data-checksums',
    '--auth-local=peer',
    '--auth-host=reject',
  ];
  try {
    await run(join(bin, 'initdb'), ['-D', draft, '-U', DATABASE_USER, '--no-instructions', ...options], {
      ...(isRoot() ? { uid: account.uid, gid: account.gid } : {}),
      cwd: '/',
      env: { PATH: '/usr/bin:/bin', LC_ALL: 'C' },
      timeout: stretched(INITDB_DEADLINE_MS),
    });
  } catch (error) {
    throw new Error(`initdb could not make ${directory}: ${failureText(error)}`, { cause: error });
  }
  await rename(draft, directory);
}

function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** Changes the owner if this process is root. Files of any other user belong to the account already. */
async function giveTo(path: string, { uid, gid }: Account): Promise<void> {
  if (isRoot()) await chown(path, uid, gid);
}

function failureText(error: unknown): string {
  const stderr: unknown = error instanceof Error ? Reflect.get(error, 'stderr') : undefined;
  return typeof stderr === 'string' && stderr !== '' ? stderr.trim().slice(-500) : String(error);
}

/**
 * Allows only the operating-system user that control runs as to log in. Other processes of PostgreSQL's account (for
 * example a system-wide PostgreSQL) reach the socket and are refused.
 */
async function writeAccessRules({ directory, account }: PostgresDirectory): Promise<void> {
  const files = {
    'pg_hba.conf': `local all all peer map=${MAP_NAME}\n`,
    'pg_ident.conf': `${MAP_NAME} ${userInfo().username} ${DATABASE_USER}\n`,
  };
  for (const [name, text] of Object.entries(files)) {
    const path = join(directory, name);
    await writeFile(path, text, { mode: 0o600 });
    await giveTo(path, account);
  }
}
