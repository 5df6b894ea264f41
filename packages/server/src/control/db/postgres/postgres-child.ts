/**
 * PostgreSQL as a child of control: created on first use, reachable only over a Unix socket, started again when it
 * dies, stopped with control.
 *
 *     start ── a live postmaster? ─── yes ─► answers? ─► ready
 *                    │ no                       │ no (starting, or shutting down after control was killed): wait
 *                    ▼                          ▼
 *              initdb if empty ─► spawn ─► answers? ─► ready ── dies ─► spawn …
 */
import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { Logger } from 'pino';
import { checkReachable, findPostgresAccount } from './postgres-account.ts';
import { DATABASE_USER, ensurePostgresDirectory } from './postgres-directory.ts';
import {
  findPostmaster,
  isAlive,
  startPostmaster,
  stopPostmaster,
  type PostmasterOptions,
} from './postmaster.ts';
import { stretched } from '../../../lib/waiting/deadline.ts';

const DATABASE_NAME = 'coppice';
const READY_DEADLINE_MS = 60_000;
const READY_POLL_MS = 50;
const CONNECT_DEADLINE_MS = 5_000;
const QUERY_DEADLINE_MS = 30_000;
/** The first start may fail because a killed postmaster's processes still hold its shared memory. */
const MAX_STARTS = 3;
const STOP_DEADLINE_MS = 10_000;
const WATCH_INTERVAL_MS = 500;
/** Name in the data directory. */
export const POSTGRES_DIRECTORY = 'postgres';
/** Name in the run directory. */
const SOCKET_DIRECTORY = 'postgres';
const SOCKET_NAME = '.s.PGSQL.5432';
/** sun_path has 108 bytes with its NUL. */
const MAX_SOCKET_DIR_BYTES = 107 - `/${SOCKET_NAME}`.length;

export interface PostgresChildOptions {
  postgresBin: string;
  dataDir: string;
  runDir: string;
  log: Logger;
}

/** Starts PostgreSQL, or takes over one that outlived the previous control, and waits until it answers. */
export async function startPostgresChild(options: PostgresChildOptions): Promise<PostgresChild> {
  const child = new PostgresChild(await prepare(options), options.log);
  await child.start();
  return child;
}

/** Returns the connection to the PostgreSQL that a control runs, if one does. It may be about to stop. */
export function findPostgresChild(runDir: string): pg.PoolConfig | undefined {
  const socketDir = join(runDir, SOCKET_DIRECTORY);
  return existsSync(join(socketDir, SOCKET_NAME)) ? describeConnection(socketDir) : undefined;
}

/** Returns the data directory of the PostgreSQL that answers: the socket may be another installation's. */
export async function findDataDirectory(connection: pg.PoolConfig): Promise<string> {
  const [row] = await query(connection, 'SHOW data_directory');
  return String(row?.['data_directory']);
}

/** Runs `text` in the database that always exists, and returns its rows. */
async function query(connection: pg.PoolConfig, text: string): Promise<Record<string, unknown>[]> {
  const deadlines = {
    connectionTimeoutMillis: stretched(CONNECT_DEADLINE_MS),
    query_timeout: stretched(QUERY_DEADLINE_MS),
  };
  const client = new pg.Client({ ...connection, database: 'postgres', ...deadlines });
  // The waiting query reports the error. Without a listener the error would end the process.
  client.on('error', () => undefined);
  try {
    await client.connect();
    return (await client.query<Record<string, unknown>>(text)).rows;
  } finally {
    await client.end();
  }
}

function describeConnection(socketDir: string): pg.PoolConfig {
  return { host: socketDir, user: DATABASE_USER, database: DATABASE_NAME };
}

export class PostgresChild implements AsyncDisposable {
  readonly #options: PostmasterOptions;
  readonly #log: Logger;
  readonly #stop = new AbortController();
  #pid = 0;
  #watching: Promise<void> = Promise.resolve();

  constructor(options: PostmasterOptions, log: Logger) {
    this.#options = options;
    this.#log = log;
  }

  get connection(): pg.PoolConfig {
    return describeConnection(this.#options.socketDir);
  }

  async start(): Promise<void> {
    await this.#ensureRunning();
    await this.#ensureDatabase();
    this.#watching = this.#watch();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#watching;
    await stopPostmaster(this.#pid, stretched(STOP_DEADLINE_MS));
  }

  async #ensureRunning(): Promise<void> {
    const end = performance.now() + stretched(READY_DEADLINE_MS);
    let started: number | undefined;
    let attempts = 0;
    while (performance.now() < end) {
      const pid = await findPostmaster(this.#options.directory);
      if (pid !== undefined && (await this.#answers())) {
        this.#pid = pid;
        this.#log.info({ pid, reused: pid !== started }, 'PostgreSQL is ready');
        return;
      }
      if (started !== undefined && !(await isAlive(started))) {
        if (attempts >= MAX_STARTS) break;
        started = undefined;
      }
      if (pid === undefined && started === undefined) {
        started = await this.#spawn();
        attempts += 1;
      }
      await delay(READY_POLL_MS);
    }
    throw new Error(`PostgreSQL did not start; its log is ${this.#options.logFile}`);
  }

  async #spawn(): Promise<number> {
    const { socketDir, account } = this.#options;
    // A socket and lock file that a killed postmaster left would prevent the start of the new one.
    await rm(socketDir, { recursive: true, force: true });
    await mkdir(socketDir, { mode: 0o700 });
    if (process.getuid?.() === 0) await chown(socketDir, account.uid, account.gid);
    return startPostmaster(this.#options);
  }

  async #answers(): Promise<boolean> {
    try {
      const directory = await findDataDirectory(this.connection);
      if (directory === this.#options.directory) return true;
      this.#log.error(
        { directory, socket_dir: this.#options.socketDir },
        'another PostgreSQL has our socket',
      );
      return false;
    } catch (error) {
      this.#log.debug({ err: error }, 'PostgreSQL does not answer yet');
      return false;
    }
  }

  async #ensureDatabase(): Promise<void> {
    const found = await query(
      this.connection,
      `SELECT 1 FROM pg_database WHERE datname = '${DATABASE_NAME}'`,
    );
    if (found.length === 0) await query(this.connection, `CREATE DATABASE ${DATABASE_NAME}`);
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await delay(WATCH_INTERVAL_MS, undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted || (await isAlive(this.#pid))) continue;
      this.#log.error(
        { pid: this.#pid, log_file: this.#options.logFile },
        'PostgreSQL died and is started again',
      );
      await this.#ensureRunning().catch((error: unknown) =>
        this.#log.error({ err: error }, 'PostgreSQL does not start'),
      );
    }
  }
}

async function prepare({ postgresBin, dataDir, runDir }: PostgresChildOptions): Promise<PostmasterOptions> {
  await mkdir(dataDir, { recursive: true, mode: 0o711 });
  await mkdir(runDir, { recursive: true, mode: 0o711 });
  const directory = join(await realpath(dataDir), POSTGRES_DIRECTORY);
  const socketDir = join(await realpath(runDir), SOCKET_DIRECTORY);
  if (Buffer.byteLength(socketDir) > MAX_SOCKET_DIR_BYTES) {
    throw new Error(`${socketDir} is too long for a Unix socket: choose a shorter run directory`);
  }
  const account = await findPostgresAccount(directory);
  await checkReachable(join(directory, '..'), account);
  await checkReachable(join(socketDir, '..'), account);
  await ensurePostgresDirectory({ directory, bin: postgresBin, account });
  await chmod(directory, 0o700);
  return { directory, socketDir, account, bin: postgresBin, logFile: join(dataDir, 'postgres.log') };
}
