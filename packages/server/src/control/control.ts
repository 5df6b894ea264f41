/** Assembles the control role. This is the only place where its parts meet. */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { join } from 'node:path';
import { lockDirectories } from '../lib/process/instance-lock.ts';
import type { ObjectStore } from '../lib/objects/object-store.ts';
import { openObjectStore } from '../lib/objects/open-object-store.ts';
import type { TlsPair } from '../lib/tls/tls-pair.ts';
import { buildAccounts } from './accounts/accounts.ts';
import { OrganizationAudit } from './audit/organization/organization-audit.ts';
import { buildAuthenticator, type Authenticate } from './auth/authenticator.ts';
import { bootstrapOrganization } from './accounts/bootstrap/bootstrap.ts';
import type { Bootstrapped } from './accounts/bootstrap/bootstrapped.ts';
import { KeyEnds } from './auth/key-ends.ts';
import { KeyGuesses } from './auth/key-guesses.ts';
import { KeyUses } from './auth/key-uses.ts';
import { SessionKeys } from './auth/session-keys.ts';
import { FileLinks } from './auth/file-links.ts';
import { Tickets } from './auth/tickets.ts';
import { UsedTickets } from './auth/used-tickets.ts';
import { DEFAULT_CONTROL_LIMITS, type ControlConfig, type ControlLimits } from './control-config.ts';
import { connectDatabase } from './db/connect-database.ts';
import { DatabaseLease } from './db/database-lease.ts';
import { DatabaseHealth } from './db/database-health.ts';
import { openDatabase, type Database, type PoolCounts } from './db/database.ts';
import { InstallationGuard } from './db/installation-guard.ts';
import { migrateDatabase } from './schema/migrate.ts';
import { BUILTIN_SERVICES } from '../lib/credential-services/builtin-services.ts';
import { EgressRules, type EgressSettings } from './egress/egress-rules.ts';
import { SecretDigest } from './egress/secret-digest.ts';
import type { Events } from './events/events.ts';
import { startEvents } from './events/start-events.ts';
import { OpenRequests } from './http/access/open-requests.ts';
import type { App } from './http/app.ts';
import { buildServer } from './http/server.ts';
import type { LimitsOf } from './limits/organization-limits.ts';
import { RateLimiter } from './limits/rate-limiter.ts';
import { ServiceMetrics } from './metrics/service-metrics.ts';
import { ControlLease } from './ownership/control-lease.ts';
import { openNodeId } from './ownership/node-id.ts';
import { PortForwarder } from './ports/forward.ts';
import { PreviewOrigins } from './ports/preview-origins.ts';
import { PreviewStore } from './ports/preview-store.ts';
import { Previews } from './ports/previews.ts';
import { RunnerClient } from './placement/runner-client.ts';
import { RunnerConnection } from './placement/runner-connection.ts';
import { SYSTEM_CLOCK, type Clock } from './time/clock.ts';
import { Idempotency } from './sandbox/idempotency.ts';
import { OutputBudget } from './sandbox/commands/output-budget.ts';
import type { RunnerLink } from './sandbox/runner-link.ts';
import type { Sandboxes } from './sandbox/sandboxes.ts';
import { MASTER_KEY_NAME, openMasterKeys } from './secrets/master-key.ts';
import { SecretBox } from './secrets/secret-box.ts';
import { NO_SITES, type Sites } from './static-site/sites.ts';
import { startWebhooks } from './webhooks/start-webhooks.ts';
import type { Webhooks } from './webhooks/webhooks.ts';
import { startSandboxes } from './start-sandboxes.ts';

const OBJECTS_DIRECTORY = 'objects';
const BUILTIN_EGRESS: EgressSettings = {
  openPrivateRanges: [],
  registries: {},
  incompleteRegistries: [],
  profiles: [],
  services: BUILTIN_SERVICES,
  replacedServices: [],
};
const PURGE_INTERVAL_MS = 3_600_000;

export interface Control extends AsyncDisposable {
  /** `http://host:port` that it listens on; `https://` under TLS. */
  address: string;
  /** Sets the certificate of new connections. Only for a control that was started with one. */
  setTls: (pair: TlsPair) => void;
  /** The secrets that this start created and did not get from the configuration: show them once. */
  bootstrap: Bootstrapped;
  /** Resolves when this control may no longer serve because another one has the database. */
  lost: Promise<Error>;
}

/** Parts that a configuration cannot contain. */
export interface ControlMeans {
  tls?: TlsPair | undefined;
  /** The clock for the life, bill and end of sandboxes. A simulation provides its own. */
  clock?: Clock;
  /** Read before control gives up root's rights: see static-site/static-site.ts. */
  sites?: Sites;
}

/**
 * Starts the control role, which serves when this resolves. Disposing it shuts down: new requests get 503, open ones
 * may end until the deadline, sandboxes keep running, and the database stops last.
 */
export async function startControl(
  config: ControlConfig,
  log: Logger,
  { tls, clock = SYSTEM_CLOCK, sites = NO_SITES }: ControlMeans = {},
): Promise<Control> {
  const limits: ControlLimits = { ...DEFAULT_CONTROL_LIMITS, ...config.limits };
  await using stack = new AsyncDisposableStack();
  const lock = stack.use(await lockDirectories('control', config));
  const rules = openRules(config, log);
  const storage = await openStorage(config, { limits, clock, log }, stack);
  const { db, events, webhooks, lease, ownership, databaseHealth, organizationAudit } = storage;
  const runner = new RunnerClient(stack.use(new RunnerConnection(config.runnerSocket, log)));
  const { region, creditCents, hstsSeconds, trustedProxies, corsOrigins } = config;
  const objects = await openObjects(config, log, stack);
  const metrics = new ServiceMetrics({ version: config.version, runner: runner.measures, log });
  const { dataDir, diskReserveMiB, objectStore } = config;
  const own = { region, dataDir, diskReserveMiB, limits, creditCents, hasBucket: objectStore?.kind === 's3' };
  const base = { ...storage, ...own, runner, objects, rules, clock, metrics, log };
  const live = await startSandboxes(base, stack);
  await live.link.start();
  const gate = new Gate(lease);
  let address = '';
  const access = openAccess(config, { ...storage, gate, limits, limitsOf: live.limitsOf, log }, stack);
  const exposed = openPorts(config, { ...storage, runner, ownAddress: () => new URL(address) }, stack);
  if (config.metricsToken !== undefined) watchState(metrics, { ...storage, ...live, ...access });
  const idempotency = new Idempotency(db, ownership.id, log);
  const { usedTickets, accounts } = access;
  const purged = [idempotency, exposed.previews, accounts.sessions, usedTickets];
  purgeHourly([...purged, ...live.purged, ...storage.purged], stack, log);
  const shared = { db, organizationAudit, rules, runner, idempotency, metrics, limits, ...sites };
  const parts = {
    ...access,
    ...live,
    ...exposed,
    ...shared,
    events,
    webhooks,
    secretDigest: new SecretDigest(storage.masterKey),
    outputBudget: new OutputBudget(limits.execOutputTotalBytes),
    ...chooseHttpSettings(config),
    exposure: { tls, hstsSeconds, trustedProxies, corsOrigins },
    ...buildHealth({ gate, databaseHealth, link: live.link }),
  };
  const server = await buildServer(parts, log);
  closeInOrder(server.app, { openRequests: access.openRequests, limits, log }, stack);
  const listening = await server.app.listen(config.listen);
  address = tls === undefined ? listening : listening.replace(/^http:/u, 'https:');
  // Last: a key made by a start that then fails would never be shown.
  const bootstrap = await bootstrapOrganization(db, organizationAudit, config);
  gate.open();
  log.info({ address, region: config.region, version: config.version }, 'control serves');
  stack.defer(() => lock.leave());
  const owned = stack.move();
  return {
    address,
    setTls: (pair) => server.tls?.setPair(pair),
    lost: Promise.race([lease.taken, ownership.fenced]),
    bootstrap,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function chooseHttpSettings({ version, region, metricsToken, continuesTraces = false }: ControlConfig) {
  return { version, region, metricsToken, continuesTraces };
}

/** On disposal requests in progress may finish until the deadline; then their connections close. */
function closeInOrder(
  app: App,
  { openRequests, limits, log }: { openRequests: OpenRequests; limits: ControlLimits; log: Logger },
  stack: AsyncDisposableStack,
): void {
  stack.adopt(app, (open) => open.close());
  stack.defer(async () => {
    const isDrained = await openRequests.drain(limits.shutdownDeadlineMs);
    if (!isDrained) log.warn('shutting down with requests still open');
  });
}

function openObjects(
  { dataDir, objectStore = { kind: 'directory' } }: ControlConfig,
  log: Logger,
  stack: AsyncDisposableStack,
): Promise<ObjectStore> {
  return openObjectStore(objectStore, { directory: join(dataDir, OBJECTS_DIRECTORY), log }, stack);
}

interface Storage {
  db: Database;
  events: Events;
  webhooks: Webhooks;
  /** Records that are deleted when they are old. */
  purged: readonly { purge: () => Promise<unknown> }[];
  lease: DatabaseLease;
  ownership: ControlLease;
  databaseHealth: DatabaseHealth;
  secrets: SecretBox;
  organizationAudit: OrganizationAudit;
  masterKey: Buffer;
  pool: PoolCounts;
}

/** Opens the master key and the database, takes the lease, brings the schema up to date and numbers events. */
async function openStorage(
  config: ControlConfig,
  { limits, clock, log }: { limits: ControlLimits; clock: Clock; log: Logger },
  stack: AsyncDisposableStack,
): Promise<Storage> {
  const { current: masterKey, older } = openMasterKeys(join(config.dataDir, MASTER_KEY_NAME));
  const connection = await connectDatabase(config, stack, log);
  const guard = new InstallationGuard(log);
  const patienceMs = limits.databasePatienceMs;
  const lease = stack.use(await DatabaseLease.acquire({ connection, guard, log, patienceMs }));
  await migrateDatabase(connection, log, guard);
  const assertUsable = (): void => lease.assertHeld();
  let pool: PoolCounts = { totalCount: 0, idleCount: 0, waitingCount: 0 };
  const onPool = (opened: PoolCounts): void => void (pool = opened);
  const opened = openDatabase(connection, log, { assertUsable, guard, onPool });
  const db = stack.adopt(opened, (open) => open.destroy());
  const nodeId = openNodeId(config.dataDir);
  const { version } = config;
  const { controlLeaseMs: leaseMs } = limits;
  const ownership = stack.use(await ControlLease.register({ db, nodeId, version, leaseMs, log }));
  const databaseHealth = new DatabaseHealth({ connection, guard, log });
  const secrets = new SecretBox(masterKey, older);
  const organizationAudit = new OrganizationAudit(secrets);
  const sending = startWebhooks({ db, secrets, organizationAudit, config, limits, clock, log }, stack);
  const events = startEvents({ db, subscriber: sending.fanOut, clock, log }, stack);
  const { webhooks } = sending;
  const purged = [events.store, sending.purged];
  const records = { db, events, webhooks, organizationAudit };
  return { ...records, purged, lease, ownership, databaseHealth, secrets, masterKey, pool };
}

interface AccessBase extends Pick<Storage, 'db' | 'masterKey' | 'organizationAudit'> {
  gate: Gate;
  limits: ControlLimits;
  limitsOf: LimitsOf;
  log: Logger;
}

/** Everything that decides who may call, and how often. */
function openAccess(
  { region, signUp = 'invited' }: ControlConfig,
  { db, masterKey, organizationAudit: audit, gate, limits, limitsOf, log }: AccessBase,
  stack: AsyncDisposableStack,
) {
  const usedTickets = new UsedTickets(db);
  const tickets = new Tickets(masterKey, usedTickets);
  const fileLinks = new FileLinks(masterKey);
  const accounts = buildAccounts({ db, region, signUp, audit, log }, stack);
  const { sessions } = accounts;
  return {
    tickets,
    usedTickets,
    fileLinks,
    authenticate: authenticateWhile(gate, buildAuthenticator({ db, region, tickets, fileLinks })),
    keyGuesses: new KeyGuesses(limits.wrongKeysPerMinute),
    keyEnds: stack.use(new KeyEnds(db, log)),
    keyUses: stack.use(new KeyUses({ db, sessions, log })),
    sessionKeys: new SessionKeys({ db, region, masterKey }),
    accounts,
    openRequests: new OpenRequests(limitsOf),
    rateLimiter: new RateLimiter(limitsOf),
  };
}

interface PortsBase extends Pick<Storage, 'db' | 'masterKey'> {
  runner: RunnerClient;
  ownAddress: () => URL;
}

/** The proxy to services in guests, and the preview links. */
function openPorts(
  { previewDomain }: ControlConfig,
  { db, masterKey, runner, ownAddress }: PortsBase,
  stack: AsyncDisposableStack,
) {
  const previewOrigins = new PreviewOrigins(previewDomain, ownAddress);
  return {
    previewOrigins,
    previews: new Previews({ store: new PreviewStore(db), origins: previewOrigins, masterKey }),
    forwarder: stack.use(new PortForwarder(runner)),
  };
}

function watchState(
  metrics: ServiceMetrics,
  { sandboxes, openRequests, pool }: { sandboxes: Sandboxes; openRequests: OpenRequests; pool: PoolCounts },
): void {
  metrics.watch({
    countSandboxes: () => sandboxes.countByState(),
    openRequests: () => openRequests.counts,
    databasePool: () => ({ size: pool.totalCount, idle: pool.idleCount, waiting: pool.waitingCount }),
  });
}

function purgeHourly(
  purged: readonly { purge: () => Promise<unknown> }[],
  stack: AsyncDisposableStack,
  log: Logger,
): void {
  const purge = setInterval(
    () => void Promise.all(purged.map((kept) => kept.purge())).catch(logPurge(log)),
    PURGE_INTERVAL_MS,
  );
  stack.defer(() => clearInterval(purge));
}

function openRules(config: ControlConfig, log: Logger): EgressRules {
  const settings = config.egress ?? BUILTIN_EGRESS;
  const rules = new EgressRules(settings);
  if (settings.replacedServices.length > 0)
    log.warn(
      { services: settings.replacedServices },
      'the operator has replaced built-in credential services',
    );
  for (const warning of rules.warnings) log.warn({ warning }, 'a rule of a network profile has no effect');
  return rules;
}

/**
 * Closed until the start is done, and while the lease of the database is not held. A start listens before a configured
 * key or invitation is in the database; meanwhile control must not answer that it is wrong.
 */
class Gate {
  readonly #lease: DatabaseLease;
  #isOpen = false;

  constructor(lease: DatabaseLease) {
    this.#lease = lease;
  }

  open(): void {
    this.#isOpen = true;
  }

  assertOpen(): void {
    if (!this.#isOpen) throw new AppError('unavailable', 'the service is starting');
    this.#lease.assertHeld();
  }
}

/** Checks the gate first, so that it also holds for credentials that need no query. */
function authenticateWhile(gate: Gate, authenticate: Authenticate): Authenticate {
  return async (credential) => {
    gate.assertOpen();
    return authenticate(credential);
  };
}

function logPurge(log: Logger): (error: unknown) => void {
  return (error) =>
    log.warn(
      { err: error },
      'expired Idempotency-Keys, preview links, sessions, events or deliveries could not be deleted',
    );
}

interface HealthParts {
  gate: Gate;
  databaseHealth: DatabaseHealth;
  link: RunnerLink;
}

function buildHealth({ gate, databaseHealth, link }: HealthParts) {
  return {
    assertServing: () => gate.assertOpen(),
    checkHealth: async (): Promise<void> => {
      await databaseHealth.check();
      gate.assertOpen();
      if (!link.isConnected) throw new AppError('unavailable', 'the runner of this machine is not connected');
    },
    getAccelerator: () => link.accelerator,
  };
}
