/** A real control for tests: real HTTP, real PostgreSQL (test-postgres.ts), and a fake runner. */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { generateApiKey, type SandboxRecord } from '@coppice/contract';
import type pg from 'pg';
import pino, { type Logger } from 'pino';
import type { ControlConfig, ControlLimits } from '../control-config.ts';
import { startControl, type Control } from '../control.ts';
import { insertOrganization } from '../accounts/organizations/organization-store.ts';
import { ensureApiKey } from '../auth/api-key-store.ts';
import { openDatabase, type Database } from '../db/database.ts';
import { FakeRunner } from './fakes/fake-runner.ts';
import { spawnControl, type SpawnedControl } from './controls/spawn-control.ts';
import { findPostgresBin, makeMigratedDatabase } from './test-postgres.ts';

export { findPostgresBin } from './test-postgres.ts';

export const API_KEY = `cop_live_us_${'k'.repeat(40)}`;
/** Invitation for an owner of the first organization. */
export const INVITATION = `inv_${'i'.repeat(43)}`;

export interface Answer {
  status: number;
  headers: Headers;
  // oxlint-disable-next-line typescript/no-explicit-any -- tests look into bodies of every form
  body: any;
}

const MIN_POLL_MS = 10;
const MAX_POLL_MS = 100;

export interface CallOptions {
  body?: unknown;
  /** Sent unchanged instead of `body`. */
  raw?: string | Uint8Array | ReadableStream | FormData;
  headers?: Record<string, string>;
  apiKey?: string | null;
  signal?: AbortSignal;
}

/** `own`: control starts one as its child. `shared`: all controls of a test file use one. */
export type PostgresChoice = 'own' | 'shared';

type HarnessPostgres = Pick<ControlConfig, 'postgresBin' | 'databaseUrl'>;

export class ControlHarness implements AsyncDisposable {
  readonly directory: string;
  readonly runner: FakeRunner;
  readonly logLines: string[] = [];
  readonly #log: Logger;
  readonly #limits: Partial<ControlLimits>;
  readonly #postgres: HarnessPostgres;
  control: Control | undefined;
  /** Used instead of `control` when a test watches the process. */
  spawned: SpawnedControl | undefined;

  constructor(directory: string, postgres: HarnessPostgres, limits: Partial<ControlLimits>) {
    this.directory = directory;
    this.runner = new FakeRunner(join(directory, 'runner.sock'));
    this.#postgres = postgres;
    this.#limits = { reconcileIntervalMs: 100, captureGraceMs: 300, shutdownDeadlineMs: 5_000, ...limits };
    this.#log = pino({ level: 'debug' }, { write: (line) => this.logLines.push(line) });
  }

  get config(): ControlConfig {
    return {
      version: '0.0.0-test',
      listen: { host: '127.0.0.1', port: 0 },
      hstsSeconds: 0,
      trustedProxies: [],
      corsOrigins: ['*'],
      region: 'us',
      previewDomain: { name: 'localhost' },
      dataDir: join(this.directory, 'data'),
      runDir: join(this.directory, 'run'),
      runnerSocket: this.runner.socketPath,
      ...this.#postgres,
      bootstrapKey: API_KEY,
      bootstrapInvitation: INVITATION,
      limits: this.#limits,
    };
  }

  get log(): Logger {
    return this.#log;
  }

  async startControl(change: Partial<ControlConfig> = {}): Promise<Control> {
    this.control = await startControl({ ...this.config, ...change }, this.#log);
    return this.control;
  }

  /** `http://host:port` of the running control. */
  get address(): string {
    const address = this.control?.address ?? this.spawned?.address;
    if (address === undefined) throw new Error('no control runs');
    return address;
  }

  async stopControl(): Promise<void> {
    await this.control?.[Symbol.asyncDispose]();
    this.control = undefined;
    await this.spawned?.[Symbol.asyncDispose]();
    this.spawned = undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopControl();
    await this.runner.stop();
    await rm(this.directory, { recursive: true, force: true });
  }

  async fetch(method: string, path: string, options: CallOptions = {}): Promise<Response> {
    const { apiKey = API_KEY, body, raw, headers = {}, signal } = options;
    return fetch(`${this.address}${path}`, {
      method,
      headers: {
        ...(apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(raw === undefined ? {} : { body: raw, duplex: 'half' as const }),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
    });
  }

  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const response = await this.fetch(method, path, options);
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      body: text === '' ? undefined : JSON.parse(text),
    };
  }

  async create(body: Record<string, unknown> = {}): Promise<SandboxRecord> {
    const answer = await this.call('POST', '/v1/runs', { body: { image: 'node:22-slim', ...body } });
    if (answer.status !== 201)
      throw new Error(`create answered ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body as SandboxRecord;
  }

  /** Adds another organization, as the dashboard would, and returns its key. */
  async addOrganization(): Promise<string> {
    const key = generateApiKey('us');
    await using db = this.openDatabase();
    await db.transaction().execute(async (transaction) => {
      const owner = await insertOrganization(transaction, { name: `org ${key.slice(-10)}`, region: 'us' });
      if (owner === undefined) throw new Error('the name is taken');
      await ensureApiKey(transaction, owner, key);
    });
    return key;
  }

  get connection(): pg.PoolConfig {
    const { databaseUrl } = this.#postgres;
    if (databaseUrl !== undefined) return { connectionString: databaseUrl };
    return { host: join(this.directory, 'run', 'postgres'), user: 'coppice', database: 'coppice' };
  }

  /** Opens the database of the running control. */
  openDatabase(): Database & AsyncDisposable {
    return openDatabase(this.connection, this.#log);
  }

  /** Waits until `fits` accepts the record of a sandbox, and returns the record. */
  async waitForRecord(id: string, fits: (record: SandboxRecord) => boolean): Promise<SandboxRecord> {
    let record: SandboxRecord | undefined;
    await waitFor(`the record of ${id}`, async () => {
      record = (await this.call('GET', `/v1/runs/${id}`)).body as SandboxRecord;
      return fits(record);
    });
    if (record === undefined) throw new Error('unreachable');
    return record;
  }
}

/** Starts a control that serves, with its runner connected. */
export async function startHarness(
  limits: Partial<ControlLimits> = {},
  postgres: PostgresChoice = 'shared',
): Promise<ControlHarness> {
  const harness = await prepareHarness(limits, postgres);
  await harness.runner.start();
  await harness.startControl();
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  return harness;
}

/** Like {@link startHarness}, with other settings. */
export async function startHarnessWith(change: Partial<ControlConfig>): Promise<ControlHarness> {
  const harness = await prepareHarness();
  await harness.runner.start();
  await harness.startControl(change);
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  return harness;
}

/** Like {@link startHarness}, with control in its own process: an exception that ends it does not end the test. */
export async function startSpawnedHarness(
  limits: Partial<ControlLimits> = {},
): Promise<ControlHarness & { spawned: SpawnedControl }> {
  // Not with its own PostgreSQL, which a killed control would leave behind.
  const harness = await prepareOn(await makeMigratedDatabase(), limits);
  await harness.runner.start();
  const spawned = await spawnControl(harness.config, { onLog: (line) => harness.logLines.push(line) });
  harness.spawned = spawned;
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  return Object.assign(harness, { spawned });
}

/** Prepares a harness with nothing started. */
export async function prepareHarness(
  limits: Partial<ControlLimits> = {},
  postgres: PostgresChoice = 'shared',
): Promise<ControlHarness> {
  return prepareOn(postgres === 'own' ? undefined : await makeMigratedDatabase(), limits);
}

/** Like {@link prepareHarness}, on the given database; without one, control starts its own PostgreSQL. */
export async function prepareOn(
  databaseUrl: string | undefined,
  limits: Partial<ControlLimits> = {},
): Promise<ControlHarness> {
  const directory = await mkdtemp(join(tmpdir(), 'cop-control-'));
  await chmod(directory, 0o755);
  const postgresBin = await findPostgresBin();
  const database = databaseUrl === undefined ? { postgresBin } : { postgresBin, databaseUrl };
  return new ControlHarness(directory, database, limits);
}

/** Polls until `condition` holds; fails after `deadlineMs`. */
export async function waitFor(
  what: string,
  condition: () => boolean | Promise<boolean>,
  deadlineMs = 10_000,
): Promise<void> {
  const startedAt = performance.now();
  while (!(await condition())) {
    const elapsedMs = performance.now() - startedAt;
    if (elapsedMs > deadlineMs) throw new Error(`waited ${deadlineMs} ms for ${what}`);
    // Polling a slow condition all the time would make it slower.
    await delay(Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, elapsedMs / 10)));
  }
}
