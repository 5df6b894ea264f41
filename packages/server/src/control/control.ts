/** The control role, put together: the only place where its parts meet. */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type pg from 'pg';
import { join } from 'node:path';
import { lockInstance } from '../lib/instance-lock.ts';
import type { TlsPair } from '../lib/tls/tls-pair.ts';
import { buildAuthenticator, type Authenticate } from './auth/authenticator.ts';
import { bootstrapOrganization } from './auth/bootstrap.ts';
import { Tickets } from './auth/tickets.ts';
import { DEFAULT_CONTROL_LIMITS, type ControlConfig, type ControlLimits } from './control-config.ts';
import { DatabaseLease } from './db/database-lease.ts';
import { migrateDatabase, openDatabase, pingDatabase, type Database } from './db/database.ts';
import { startPostgresChild } from './db/postgres-child.ts';
import { ImageUses } from './images/image-uses.ts';
import { OpenRequests } from './http/open-requests.ts';
import { buildServer } from './http/server.ts';
import { PortForwarder } from './ports/forward.ts';
import { PreviewOrigins } from './ports/preview-origins.ts';
import { PreviewStore } from './ports/preview-store.ts';
import { Previews } from './ports/previews.ts';
import { RunnerClient } from './placement/runner-client.ts';
import { RunnerConnection } from './placement/runner-connection.ts';
import { Registries } from './registries/registries.ts';
import { RegistryStore } from './registries/registry-store.ts';
import { SYSTEM_CLOCK } from './sandbox/clock.ts';
import { FamilyStore } from './sandbox/family-store.ts';
import { Idempotency } from './sandbox/idempotency.ts';
import { OutputBudget } from './sandbox/output-capture.ts';
import { LiveDrivers } from './sandbox/live-drivers.ts';
import { RunnerLink } from './sandbox/runner-link.ts';
import { SandboxStore } from './sandbox/sandbox-store.ts';
import { Sandboxes } from './sandbox/sandboxes.ts';
import { openMasterKey } from './secrets/master-key.ts';
import { SecretBox } from './secrets/secret-box.ts';
import { CaptureKeeper } from './snapshots/capture-keeper.ts';
import { SnapshotStore } from './snapshots/snapshot-store.ts';
import { Snapshots } from './snapshots/snapshots.ts';

const MASTER_KEY_NAME = 'master.key';
const PURGE_INTERVAL_MS = 3_600_000;

export interface Control extends AsyncDisposable {
  /** `http://host:port` that it listens on; `https://` under TLS. */
  address: string;
  /** New connections get this certificate. Only for a control that was started with one. */
  setTls: (pair: TlsPair) => void;
  /** Only on the first start, and only when the key was made here: show it once. */
  bootstrap?: { apiKey: string };
  /** Settles when it may serve no longer, although nobody asked it to stop. */
  lost: Promise<Error>;
}

/**
 * Starts the control role; it serves when this resolves. Disposing it shuts down: new requests get 503, open ones may
 * end until the deadline, sandboxes live on, the database goes last.
 */
export async function startControl(config: ControlConfig, log: Logger, tls?: TlsPair): Promise<Control> {
  const limits: ControlLimits = { ...DEFAULT_CONTROL_LIMITS, ...config.limits };
  await using stack = new AsyncDisposableStack();
  const lock = stack.use(await lockInstance('control', config.dataDir));
  const masterKey = openMasterKey(join(config.dataDir, MASTER_KEY_NAME));
  const secrets = new SecretBox(masterKey);
  const connection = await connectTo(config, stack, log);
  const lease = stack.use(await DatabaseLease.acquire({ connection, log }));
  const db = stack.adopt(openDatabase(connection, log), (open) => open.destroy());
  await migrateDatabase(db, log);
  const runner = new RunnerClient(stack.use(new RunnerConnection(config.runnerSocket, log)));
  const { region } = config;
  const live = await startSandboxes({ db, runner, secrets, region, limits, log }, stack);
  const { link } = live;
  await link.start();
  const idempotency = new Idempotency(db, log);
  let address = '';
  const previewOrigins = new PreviewOrigins(config.previewDomain, () => new URL(address));
  const previews = new Previews({ store: new PreviewStore(db), origins: previewOrigins, masterKey });
  const forwarder = stack.use(new PortForwarder(runner));
  const purge = setInterval(
    () => void Promise.all([idempotency.purge(), previews.purge()]).catch(logPurge(log)),
    PURGE_INTERVAL_MS,
  );
  stack.defer(() => clearInterval(purge));
  const openRequests = new OpenRequests(limits);
  const { hstsSeconds, trustedProxies } = config;
  const tickets = new Tickets(masterKey);
  const server = await buildServer(
    {
      authenticate: authenticateWhileHeld(lease, buildAuthenticator({ db, region, tickets })),
      tickets,
      ...live,
      runner,
      forwarder,
      previews,
      previewOrigins,
      idempotency,
      openRequests,
      outputBudget: new OutputBudget(limits.execOutputTotalBytes),
      limits,
      version: config.version,
      exposure: { tls, hstsSeconds, trustedProxies },
      checkHealth: () => checkHealth(db, lease, link),
    },
    log,
  );
  stack.adopt(server.app, (open) => open.close());
  stack.defer(async () => {
    const isDrained = await openRequests.drain(limits.shutdownDeadlineMs);
    if (!isDrained) log.warn('shutting down with requests still open');
  });
  const listening = await server.app.listen(config.listen);
  address = tls === undefined ? listening : listening.replace(/^http:/u, 'https:');
  // Only now: a key that is made by a start which then fails would be shown to nobody, and never again.
  const apiKey = await bootstrapOrganization(db, config);
  log.info({ address, region: config.region, version: config.version }, 'control serves');
  stack.defer(() => lock.leave());
  const owned = stack.move();
  return {
    address,
    setTls: (pair) => server.tls?.setPair(pair),
    lost: lease.taken,
    ...(apiKey === undefined ? {} : { bootstrap: { apiKey } }),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

interface SandboxesBase {
  db: Database;
  runner: RunnerClient;
  secrets: SecretBox;
  region: string;
  limits: ControlLimits;
  log: Logger;
}

/** Takes up the sandboxes that are alive, and what keeps them true to what runs; that is not started yet. */
async function startSandboxes(base: SandboxesBase, stack: AsyncDisposableStack) {
  const { db, runner, secrets, region, limits, log } = base;
  const clock = SYSTEM_CLOCK;
  const store = new SandboxStore(db);
  const registries = new Registries({ store: new RegistryStore(db), secrets, log });
  const imageUses = new ImageUses(db, log);
  const family = new FamilyStore(db);
  const drivers = stack.use(new LiveDrivers({ runner, store, clock, limits, log }));
  await drivers.load();
  const common = { drivers, runner, store, clock };
  const sandboxes = new Sandboxes({ ...common, region, registries, imageUses, family });
  const saved = { store: new SnapshotStore(db), captures: runner.captures, clock, log };
  const snapshots = new Snapshots({ ...saved, limits });
  const captures = new CaptureKeeper({ ...saved, snapshots, drivers, graceMs: limits.captureGraceMs });
  const { reconcileIntervalMs } = limits;
  const link = stack.use(new RunnerLink({ ...common, captures, reconcileIntervalMs, log }));
  return { sandboxes, snapshots, registries, imageUses, link };
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

function authenticateWhileHeld(lease: DatabaseLease, authenticate: Authenticate): Authenticate {
  return async (credential) => {
    checkHeld(lease);
    return authenticate(credential);
  };
}

/** Without the lease another control may be about to write the same records. */
function checkHeld(lease: DatabaseLease): void {
  if (!lease.isHeld) throw new AppError('unavailable', 'the database does not answer; try again');
}

function logPurge(log: Logger): (error: unknown) => void {
  return (error) => log.warn({ err: error }, 'old Idempotency-Keys and preview links are still there');
}

async function checkHealth(db: Database, lease: DatabaseLease, link: RunnerLink): Promise<void> {
  await pingDatabase(db);
  checkHeld(lease);
  if (!link.isConnected) throw new AppError('unavailable', 'the runner of this machine is not connected');
}
