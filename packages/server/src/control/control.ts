/** The control role, put together: the only place where its parts meet. */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type pg from 'pg';
import { lockInstance } from '../lib/instance-lock.ts';
import { buildAuthenticator, type Authenticate } from './auth/authenticator.ts';
import { bootstrapOrganization } from './auth/bootstrap.ts';
import { DEFAULT_CONTROL_LIMITS, type ControlConfig, type ControlLimits } from './control-config.ts';
import { DatabaseLease } from './db/database-lease.ts';
import { migrateDatabase, openDatabase, pingDatabase, type Database } from './db/database.ts';
import { startPostgresChild } from './db/postgres-child.ts';
import { OpenRequests } from './http/open-requests.ts';
import { buildServer } from './http/server.ts';
import { RunnerClient } from './placement/runner-client.ts';
import { RunnerConnection } from './placement/runner-connection.ts';
import { SYSTEM_CLOCK } from './sandbox/clock.ts';
import { Idempotency } from './sandbox/idempotency.ts';
import { OutputBudget } from './sandbox/output-capture.ts';
import { RunnerLink } from './sandbox/runner-link.ts';
import { SandboxStore } from './sandbox/sandbox-store.ts';
import { Sandboxes } from './sandbox/sandboxes.ts';

const PURGE_INTERVAL_MS = 3_600_000;

export interface Control extends AsyncDisposable {
  /** `http://host:port` that it listens on. */
  address: string;
  /** Only on the first start, and only when the key was made here: show it once. */
  bootstrap?: { apiKey: string };
  /** Settles when it may serve no longer, although nobody asked it to stop. */
  lost: Promise<Error>;
}

/**
 * Starts the control role; it serves when this resolves. Disposing it shuts down: new requests get 503, open ones may
 * end until the deadline, sandboxes live on, the database goes last.
 */
export async function startControl(config: ControlConfig, log: Logger): Promise<Control> {
  const limits: ControlLimits = { ...DEFAULT_CONTROL_LIMITS, ...config.limits };
  await using stack = new AsyncDisposableStack();
  const lock = stack.use(await lockInstance('control', config.dataDir));
  const connection = await connectTo(config, stack, log);
  const lease = stack.use(await DatabaseLease.acquire({ connection, log }));
  const db = stack.adopt(openDatabase(connection, log), (open) => open.destroy());
  await migrateDatabase(db, log);
  const runner = new RunnerClient(stack.use(new RunnerConnection(config.runnerSocket, log)));
  const store = new SandboxStore(db);
  const clock = SYSTEM_CLOCK;
  const sandboxes = stack.use(new Sandboxes({ runner, store, clock, limits, log, region: config.region }));
  await sandboxes.load();
  const { reconcileIntervalMs } = limits;
  const link = stack.use(new RunnerLink({ runner, sandboxes, store, clock, reconcileIntervalMs, log }));
  await link.start();
  const idempotency = new Idempotency(db, log);
  const purge = setInterval(() => void idempotency.purge().catch(logPurge(log)), PURGE_INTERVAL_MS);
  stack.defer(() => clearInterval(purge));
  const openRequests = new OpenRequests(limits.openRequestsPerOrganization);
  const server = await buildServer(
    {
      authenticate: authenticateWhileHeld(lease, buildAuthenticator(db, config.region)),
      sandboxes,
      runner,
      idempotency,
      openRequests,
      outputBudget: new OutputBudget(limits.execOutputTotalBytes),
      limits,
      version: config.version,
      checkHealth: () => checkHealth(db, link),
    },
    log,
  );
  stack.adopt(server, (open) => open.close());
  stack.defer(async () => {
    const isDrained = await openRequests.drain(limits.shutdownDeadlineMs);
    if (!isDrained) log.warn('shutting down with requests still open');
  });
  const address = await server.listen(config.listen);
  // Only now: a key that is made by a start which then fails would be shown to nobody, and never again.
  const apiKey = await bootstrapOrganization(db, config);
  log.info({ address, region: config.region, version: config.version }, 'control serves');
  stack.defer(() => lock.leave());
  const owned = stack.move();
  return {
    address,
    lost: lease.taken,
    ...(apiKey === undefined ? {} : { bootstrap: { apiKey } }),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function connectTo(
  config: ControlConfig,
  stack: AsyncDisposableStack,
  log: Logger,
): Promise<pg.PoolConfig> {
  if (config.databaseUrl !== undefined) return { connectionString: config.databaseUrl };
  const { postgresBin, dataDir, runDir } = config;
  return stack.use(await startPostgresChild({ postgresBin, dataDir, runDir, log })).connection;
}

/** Without the lease another control may be about to write the same records. */
function authenticateWhileHeld(lease: DatabaseLease, authenticate: Authenticate): Authenticate {
  return async (header) => {
    if (!lease.isHeld) throw new AppError('unavailable', 'the database does not answer; try again');
    return authenticate(header);
  };
}

function logPurge(log: Logger): (error: unknown) => void {
  return (error) => log.warn({ err: error }, 'old Idempotency-Keys are still there');
}

async function checkHealth(db: Database, link: RunnerLink): Promise<void> {
  await pingDatabase(db);
  if (!link.isConnected) throw new AppError('unavailable', 'the runner of this machine is not connected');
}
