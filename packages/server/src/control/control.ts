/** Assembles the control role. This is the only place where its parts meet. */
import { AppError } from '@coppice/contract';
import type pg from 'pg';
import type { Logger } from 'pino';
import { isIP } from 'node:net';
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
import { ChangeHints, type ChangeHintsOptions } from './db/change-hints.ts';
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
import { InternalNetwork } from './internal/internal-network.ts';
import { markPeer } from './http/forwarding/forwarded-request.ts';
import { RequestForwarder } from './http/forwarding/request-forwarder.ts';
import { findOwner, type Owner } from './ownership/owners.ts';
import type { LimitsOf } from './limits/organization-limits.ts';
import { RateLimiter } from './limits/rate-limiter.ts';
import { shareLimit, shareLimits, type Share } from './limits/share.ts';
import { countSandboxes } from './metrics/count-sandboxes.ts';
import { ServiceMetrics } from './metrics/service-metrics.ts';
import { ControlLease } from './ownership/control-lease.ts';
import { RunnerClaims, type JoinedRunner } from './ownership/runner-claims.ts';
import { ControlCount } from './ownership/control-count.ts';
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
import { Runners } from './runners/runners.ts';
import { MASTER_KEY_NAME, openMasterKeys } from './secrets/master-key.ts';
import { SecretBox } from './secrets/secret-box.ts';
import { NO_SITES, type Sites } from './static-site/sites.ts';
import { startWebhooks, type StartedWebhooks } from './webhooks/start-webhooks.ts';
import type { Webhooks } from './webhooks/webhooks.ts';
import { purgeHourly } from './purge-hourly.ts';
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
  const local = openRunner(config, log, stack);
  const claims = new RunnerClaims(db, ownership.id);
  const runners = new Runners((shape) => claims.findRoomElsewhere(shape));
  const { region, creditCents, hstsSeconds, trustedProxies, corsOrigins } = config;
  const objects = await openObjects(config, log, stack);
  const metrics = new ServiceMetrics({ version: config.version, runners, log });
  const { dataDir, diskReserveMiB, objectStore } = config;
  const hasBucket = objectStore?.kind === 's3';
  const own = { region, dataDir, diskReserveMiB, limits, creditCents, hasBucket };
  const internal = await openInternal(config, storage, log);
  const connect = internal && ((runner: JoinedRunner) => internal.connect(runner));
  const base = { ...storage, ...own, connect, local, claims, runners, objects, rules, clock, metrics, log };
  const live = await startSandboxes(base, stack);
  await live.fleet.start();
  const gate = new Gate(lease);
  let address = '';
  const access = openAccess(config, { ...storage, gate, limits, limitsOf: live.limitsOf, log }, stack);
  const exposed = openPorts(
    config,
    { ...storage, runnerOf: live.runnerOf, ownAddress: () => new URL(address) },
    stack,
  );
  if (config.metricsToken !== undefined) watchState(metrics, { ...storage, ...access });
  const idempotency = new Idempotency(db, ownership.id, log);
  const purged = [idempotency, exposed.previews, access.accounts.sessions, access.usedTickets];
  const shared = [...purged, ...live.purged, ...storage.purged];
  purgeHourly({ ...storage, shared, own: [live.buildKeeper], log }, stack);
  const common = { db, organizationAudit, rules, runners, idempotency, metrics, limits, ...sites };
  const parts = {
    ...access,
    ...live,
    ...exposed,
    ...common,
    events,
    webhooks,
    requestForwarder: internal && openForwarder(internal, db, log, stack),
    secretDigest: new SecretDigest(storage.masterKey),
    outputBudget: new OutputBudget(limits.execOutputTotalBytes),
    ...chooseHttpSettings(config),
    exposure: { tls, hstsSeconds, trustedProxies, corsOrigins },
    ...buildHealth({ gate, databaseHealth, runners }),
  };
  const server = await buildServer(parts, log);
  closeInOrder(server.app, { openRequests: access.openRequests, limits, log }, stack);
  if (internal !== undefined) await listenInternally(config, { internal, ownership, app: server.app }, stack);
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
    lost: Promise.race([lease.taken, ownership.fenced, live.fleet.replaced]),
    bootstrap,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function openRunner(
  { runnerSocket: path }: ControlConfig,
  log: Logger,
  stack: AsyncDisposableStack,
): RunnerClient {
  return new RunnerClient(stack.use(new RunnerConnection({ kind: 'socket', path }, log)));
}

/** Undefined for a control that is alone on its database, with the runner of its own machine. */
async function openInternal(
  { region, internalListen }: ControlConfig,
  { db, secrets, ownership }: Storage,
  log: Logger,
): Promise<InternalNetwork | undefined> {
  if (internalListen === undefined) return undefined;
  return InternalNetwork.open({ db, secrets, controlId: ownership.id, region, log });
}

function openForwarder(
  internal: InternalNetwork,
  db: Database,
  log: Logger,
  stack: AsyncDisposableStack,
): RequestForwarder {
  const tlsTo = (owner: Owner): object => internal.tlsTo(owner);
  return stack.use(new RequestForwarder({ findOwner: (runnerId) => findOwner(db, runnerId), tlsTo, log }));
}

interface Listening {
  internal: InternalNetwork;
  ownership: ControlLease;
  app: App;
}

/** From then on other controls forward requests to this one. */
async function listenInternally(
  { internalListen: listen, internalAddress }: ControlConfig,
  { internal, ownership, app }: Listening,
  stack: AsyncDisposableStack,
): Promise<void> {
  if (listen === undefined) return;
  const listener = stack.use(
    await internal.listen(listen, {
      mark: markPeer,
      request: (request, response) => app.routing(request, response),
      upgrade: (request, socket, head) => void app.server.emit('upgrade', request, socket, head),
    }),
  );
  await ownership.publish(formatInternalAddress(internalAddress ?? listen.host, listener.port));
}

/** Adds the port, unless it is there. An IPv6 address gets brackets. */
function formatInternalAddress(host: string, port: number): string {
  if (isIP(host) === 6) return `[${host}]:${port}`;
  return /:\d+$/u.test(host) ? host : `${host}:${port}`;
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
  hints: ChangeHints;
  webhooks: Webhooks;
  /** Records that are deleted when they are old. */
  purged: readonly { purge: () => Promise<unknown> }[];
  lease: DatabaseLease;
  ownership: ControlLease;
  nodeId: string;
  controls: ControlCount;
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
  const isShared = config.internalListen !== undefined;
  const lease = stack.use(await DatabaseLease.acquire({ connection, guard, log, patienceMs, isShared }));
  await migrateDatabase(connection, log, guard);
  const nodeId = openNodeId(config.dataDir);
  const { ownership, assertUsable } = await registerControl(
    config,
    { connection, lease, guard, nodeId, limits, log },
    stack,
  );
  let pool: PoolCounts = { totalCount: 0, idleCount: 0, waitingCount: 0 };
  const onPool = (opened: PoolCounts): void => void (pool = opened);
  const opened = openDatabase(connection, log, { assertUsable, guard, onPool });
  const db = stack.adopt(opened, (open) => open.destroy());
  const controls = stack.use(await ControlCount.open({ db, log }));
  const databaseHealth = new DatabaseHealth({ connection, guard, log });
  const secrets = new SecretBox(masterKey, older);
  const organizationAudit = new OrganizationAudit(secrets);
  const running = { db, leadership: ownership, clock, log };
  const sending = startWebhooks({ ...running, secrets, organizationAudit, config, limits }, stack);
  const events = startEvents({ ...running, subscriber: sending.fanOut }, stack);
  const hints = openHints({ connection, guard, log }, { events, sending }, stack);
  const { webhooks } = sending;
  const purged = [events.store, sending.purged];
  const records = { db, events, hints, webhooks, organizationAudit };
  return { ...records, purged, lease, ownership, controls, nodeId, databaseHealth, secrets, masterKey, pool };
}

/** Other controls number events and make deliveries, too. */
function openHints(
  options: ChangeHintsOptions,
  { events, sending }: { events: Events; sending: StartedWebhooks },
  stack: AsyncDisposableStack,
): ChangeHints {
  const hints = stack.use(new ChangeHints(options));
  hints.on('events', () => events.sequencer.wake());
  hints.on('deliveries', () => sending.wake());
  hints.start();
  return hints;
}

interface RegisterBase {
  connection: pg.PoolConfig;
  lease: DatabaseLease;
  guard: InstallationGuard;
  nodeId: string;
  limits: ControlLimits;
  log: Logger;
}

/**
 * Registers this control. One that shares the database uses it only while its own lease is held: then no other control takes its
 * runners. The lease has connections of its own, on which it is renewed.
 */
async function registerControl(
  { version, internalListen }: ControlConfig,
  { connection, lease, guard, nodeId, limits, log }: RegisterBase,
  stack: AsyncDisposableStack,
): Promise<{ ownership: ControlLease; assertUsable: () => void }> {
  const assertUsable = (): void => lease.assertHeld();
  const db = stack.adopt(openDatabase(connection, log, { assertUsable, guard }), (open) => open.destroy());
  const isAlone = internalListen === undefined;
  const { controlLeaseMs: leaseMs } = limits;
  const ownership = stack.use(await ControlLease.register({ db, nodeId, version, leaseMs, isAlone, log }));
  if (isAlone) return { ownership, assertUsable };
  return {
    ownership,
    assertUsable: () => {
      lease.assertHeld();
      ownership.assertHeld();
    },
  };
}

interface AccessBase extends Pick<Storage, 'db' | 'masterKey' | 'organizationAudit' | 'controls'> {
  gate: Gate;
  limits: ControlLimits;
  limitsOf: LimitsOf;
  log: Logger;
}

/** Everything that decides who may call, and how often. */
function openAccess(
  { region, regionAddresses = new Map(), signUp = 'invited' }: ControlConfig,
  { db, masterKey, organizationAudit: audit, controls, gate, limits, limitsOf, log }: AccessBase,
  stack: AsyncDisposableStack,
) {
  const share: Share = (limit) => shareLimit(limit, controls.now);
  const ownLimitsOf = shareLimits(limitsOf, share);
  const usedTickets = new UsedTickets(db);
  const tickets = new Tickets(masterKey, usedTickets);
  const fileLinks = new FileLinks(masterKey);
  const accounts = buildAccounts({ db, region, signUp, audit, share, log }, stack);
  const { sessions } = accounts;
  return {
    tickets,
    usedTickets,
    fileLinks,
    authenticate: authenticateWhile(
      gate,
      buildAuthenticator({ db, region, regionAddresses, tickets, fileLinks }),
    ),
    keyGuesses: new KeyGuesses({ failuresPerMinute: limits.wrongKeysPerMinute, share }),
    keyEnds: stack.use(new KeyEnds(db, log)),
    keyUses: stack.use(new KeyUses({ db, sessions, log })),
    sessionKeys: new SessionKeys({ db, region, masterKey }),
    accounts,
    openRequests: new OpenRequests(ownLimitsOf, share),
    rateLimiter: new RateLimiter(ownLimitsOf),
  };
}

interface PortsBase extends Pick<Storage, 'db' | 'masterKey'> {
  runnerOf: (sandboxId: string) => RunnerClient;
  ownAddress: () => URL;
}

/** The proxy to services in guests, and the preview links. */
function openPorts(
  { previewDomain }: ControlConfig,
  { db, masterKey, runnerOf, ownAddress }: PortsBase,
  stack: AsyncDisposableStack,
) {
  const previewOrigins = new PreviewOrigins(previewDomain, ownAddress);
  return {
    previewOrigins,
    previews: new Previews({ store: new PreviewStore(db), origins: previewOrigins, masterKey }),
    forwarder: stack.use(new PortForwarder(runnerOf)),
  };
}

function watchState(
  metrics: ServiceMetrics,
  {
    db,
    ownership,
    openRequests,
    pool,
  }: Pick<Storage, 'db' | 'ownership' | 'pool'> & { openRequests: OpenRequests },
): void {
  metrics.watch({
    countSandboxes: () => countSandboxes(db, ownership.id),
    openRequests: () => openRequests.counts,
    databasePool: () => ({ size: pool.totalCount, idle: pool.idleCount, waiting: pool.waitingCount }),
  });
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

interface HealthParts {
  gate: Gate;
  databaseHealth: DatabaseHealth;
  runners: Runners;
}

function buildHealth({ gate, databaseHealth, runners }: HealthParts) {
  return {
    assertServing: () => gate.assertOpen(),
    checkHealth: async (): Promise<void> => {
      await databaseHealth.check();
      gate.assertOpen();
      if (runners.listConnected().length === 0) throw new AppError('unavailable', 'no runner is connected');
    },
    getAccelerator: () => runners.any().status.accelerator,
  };
}
