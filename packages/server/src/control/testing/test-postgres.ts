/**
 * The PostgreSQL of the tests: one for each test file, with a database in it for each control, by DATABASE_URL. It is
 * the newest that is installed. `npm test` runs the tests that depend on it twice, the second time with the programs in
 * COPPICE_TEST_POSTGRES_BIN.
 */
import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, mkdtemp, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { pino } from 'pino';
import { migrateDatabase } from '../schema/migrate.ts';
import { startPostgresChild, type PostgresChildOptions } from '../db/postgres/postgres-child.ts';
import { findPostmaster } from '../db/postgres/postmaster.ts';
import { makeOncePerRun } from './once-per-run.ts';

const run = promisify(execFile);
const INSTALLED_DIRS = '/usr/lib/postgresql';
/** A database with the schema of this version. */
const MIGRATED = 'migrated';
const COPY_TIMEOUT_MS = 60_000;
const log = pino({ level: 'silent' });

/** Returns the directory of the programs that tests run. */
export async function findPostgresBin(): Promise<string> {
  return process.env['COPPICE_TEST_POSTGRES_BIN'] ?? findInstalledPostgres();
}

/** Returns the newest installed version, which may differ from {@link findPostgresBin}. Throws without any. */
export async function findInstalledPostgres(): Promise<string> {
  const majors = (await readdir(INSTALLED_DIRS))
    .map(Number)
    .filter(Number.isSafeInteger)
    .sort((a, b) => b - a);
  if (majors[0] === undefined)
    throw new Error(`no PostgreSQL in ${INSTALLED_DIRS}: apt-get install postgresql`);
  return join(INSTALLED_DIRS, String(majors[0]), 'bin');
}

/** Makes an empty database in a PostgreSQL that belongs to no control and ends with this process. Returns its URL. */
export async function makeDatabase(): Promise<string> {
  return (await createDatabase('template1')).url;
}

/** Like {@link makeDatabase}, with the schema of this version: a copy, as the migrations take far longer. */
export async function makeMigratedDatabase(): Promise<string> {
  const { url } = await createDatabase(MIGRATED);
  // Each installation has an id of its own.
  await runQuery({ connectionString: url }, 'UPDATE installation SET id = gen_random_uuid()');
  return url;
}

async function createDatabase(template: string): Promise<{ name: string; url: string }> {
  server ??= startServer();
  const { connection } = await server;
  const name = `test_${(databases += 1)}`;
  await createFrom(template, name, connection);
  return { name, url: describeUrl(connection, name) };
}

async function createFrom(template: string, name: string, connection: pg.PoolConfig): Promise<void> {
  await runQuery({ ...connection, database: 'postgres' }, `CREATE DATABASE ${name} TEMPLATE ${template}`);
}

function describeUrl({ user, host }: pg.PoolConfig, name: string): string {
  return `postgresql://${user}@/${name}?host=${host}`;
}

async function runQuery(connection: pg.ClientConfig, text: string): Promise<void> {
  const client = new pg.Client(connection);
  await client.connect();
  await client.query(text);
  await client.end();
}

let server: Promise<{ connection: pg.PoolConfig }> | undefined;
let databases = 0;

async function startServer(): Promise<{ connection: pg.PoolConfig }> {
  const directory = await mkdtemp(join(tmpdir(), 'cop-shared-'));
  await chmod(directory, 0o755);
  const dataDir = join(directory, 'data');
  const options = { postgresBin: await findPostgresBin(), dataDir, runDir: join(directory, 'run'), log };
  const prepared = await makeOncePerRun(nameData(options.postgresBin), (path) =>
    prepareData({ ...options, dataDir: path }),
  );
  if (prepared !== undefined) await run('cp', ['--archive', prepared, dataDir], { timeout: COPY_TIMEOUT_MS });
  const child = await startPostgresChild(options);
  if (prepared === undefined) await makeMigrated(child.connection);
  const pid = await findPostmaster(join(dataDir, 'postgres'));
  // An exit waits for nothing: a detached process removes the directory once PostgreSQL has stopped.
  process.once('exit', () => {
    const script = 'kill -QUIT "$1"; sleep 2; rm -rf "$2"';
    spawn('sh', ['-c', script, 'sh', String(pid), directory], { detached: true, stdio: 'ignore' });
  });
  return child;
}

/** Names data by the programs that make it: other programs make other data. */
function nameData(postgresBin: string): string {
  return `postgres-${createHash('sha256').update(postgresBin).digest('hex').slice(0, 8)}`;
}

/** Prepares data once for all tests: initdb and the migrations take longer than most tests. */
async function prepareData(options: PostgresChildOptions): Promise<void> {
  await using child = await startPostgresChild(options);
  await makeMigrated(child.connection);
}

/** Makes the template. Autovacuum is off: on databases of finished tests it would cost more than those in use. */
async function makeMigrated(connection: pg.PoolConfig): Promise<void> {
  for (const text of ['ALTER SYSTEM SET autovacuum = off', 'SELECT pg_reload_conf()'])
    await runQuery({ ...connection, database: 'postgres' }, text);
  await createFrom('template1', MIGRATED, connection);
  await migrateDatabase({ connectionString: describeUrl(connection, MIGRATED) }, log);
}
