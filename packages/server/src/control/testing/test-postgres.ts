/**
 * Which PostgreSQL the tests use. `npm test` runs those that lean on it twice:
 *
 *     nothing set                       the newest that is installed, as control's own child, one for each control
 *     COPPICE_TEST_POSTGRES_BIN=<dir>   these programs
 *     COPPICE_TEST_DATABASE=shared      one for a test file, a database in it for each control, by DATABASE_URL
 */
import { spawn } from 'node:child_process';
import { chmod, mkdtemp, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { pino } from 'pino';
import { startPostgresChild } from '../db/postgres-child.ts';
import { findPostmaster } from '../db/postmaster.ts';

const INSTALLED_DIRS = '/usr/lib/postgresql';
const log = pino({ level: 'silent' });

/** The programs that tests run. */
export async function findPostgresBin(): Promise<string> {
  return process.env['COPPICE_TEST_POSTGRES_BIN'] ?? findInstalledPostgres();
}

/** The newest that is installed: another version than {@link findPostgresBin} where that is set to one. */
export async function findInstalledPostgres(): Promise<string> {
  const majors = (await readdir(INSTALLED_DIRS))
    .map(Number)
    .filter(Number.isSafeInteger)
    .sort((a, b) => b - a);
  if (majors[0] === undefined)
    throw new Error(`no PostgreSQL in ${INSTALLED_DIRS}: apt-get install postgresql`);
  return join(INSTALLED_DIRS, String(majors[0]), 'bin');
}

/** An empty database in the PostgreSQL that the controls of this file share; undefined where each has its own. */
export async function makeSharedDatabase(): Promise<string | undefined> {
  return process.env['COPPICE_TEST_DATABASE'] === 'shared' ? makeDatabase() : undefined;
}

/** An empty database in a PostgreSQL that is no control's, and ends with this process. */
export async function makeDatabase(): Promise<string> {
  server ??= startServer();
  const { connection } = await server;
  const name = `test_${(databases += 1)}`;
  const client = new pg.Client({ ...connection, database: 'postgres' });
  await client.connect();
  await client.query(`CREATE DATABASE ${name}`);
  await client.end();
  return `postgresql://${connection.user}@/${name}?host=${connection.host}`;
}

let server: Promise<{ connection: pg.PoolConfig }> | undefined;
let databases = 0;

async function startServer(): Promise<{ connection: pg.PoolConfig }> {
  const directory = await mkdtemp(join(tmpdir(), 'cop-shared-'));
  await chmod(directory, 0o755);
  const dataDir = join(directory, 'data');
  const postgresBin = await findPostgresBin();
  const child = await startPostgresChild({ postgresBin, dataDir, runDir: join(directory, 'run'), log });
  const pid = await findPostmaster(join(dataDir, 'postgres'));
  // An exit waits for nothing: the directory is removed behind it, once PostgreSQL has let go.
  process.once('exit', () => {
    const script = 'kill -QUIT "$1"; sleep 2; rm -rf "$2"';
    spawn('sh', ['-c', script, 'sh', String(pid), directory], { detached: true, stdio: 'ignore' });
  });
  return child;
}
