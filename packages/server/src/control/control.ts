/** Assembles the control role. This is the only place where its parts meet. */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { join } from 'node:path';
import { lockDirectories } from '../lib/process/instance-lock.ts';
import type { ObjectStore } from '../lib/objects/object-store.ts';
import { openObjectStore } from '../lib/objects/open-object-store.ts';
import type { TlsPair } from '../lib/tls/tls-pair.ts';
import { buildAccounts } from './accounts/accounts.ts';
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
import type { DatabaseHealth } from './db/database-health.ts';
import { BUILTIN_SERVICES } from '../lib/credential-services/builtin-services.ts';
import { EgressRules, type EgressSettings } from './egress/egress-rules.ts';
import { SecretDigest } from './egress/secret-digest.ts';
import { OpenRequests } from './http/access/open-requests.ts';
import type { App } from './http/app.ts';
import { buildServer } from './http/server.ts';
import type { Exposure } from './http/serving/exposure.ts';
import { stopListening } from './http/serving/stop-listening.ts';
import type { LimitsOf } from './limits/organization-limits.ts';
import { RateLimiter } from './limits/rate-limiter.ts';
import { shareLimit, shareLimits, type Share } from './limits/share.ts';
import type { ControlCounts } from './metrics/control-metrics.ts';
import { countSandboxes } from './metrics/count-sandboxes.ts';
import { ServiceMetrics } from './metrics/service-metrics.ts';
import type { ControlLease } from './ownership/control-lease.ts';
import { PortForwarder } from './ports/forward.ts';
import { PreviewOrigins } from './ports/preview-origins.ts';
import { PreviewStore } from './ports/preview-store.ts';
import { Previews } from './ports/previews.ts';
import type { RunnerClient } from './placement/runner-client.ts';
import { SYSTEM_CLOCK, type Clock } from './time/clock.ts';
import { Idempotency } from './sandbox/idempotency.ts';
import type { RunnerFleet } from './sandbox/runner-fleet.ts';
import { OutputBudget } from './sandbox/commands/output-budget.ts';
import type { Runners } from './runners/runners.ts';
import { NO_SITES, type Sites } from './static-site/sites.ts';
import { purgeHourly } from './purge-hourly.ts';
import { listenInternally, openNetwork } from './open-network.ts';
import { openStorage, type Storage } from './open-storage.ts';
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
 * may end until the deadline, other controls may take the runners, and sandboxes keep running.
 */
export async function startControl(
  config: ControlConfig,
  log: Logger,
  { tls, clock = SYSTEM_CLOCK, sites = NO_SITES }: ControlMeans = {},
): Promise<Control> {
  const limits: ControlLimits = { ...DEFAULT_CONTROL_LIMITS, ...config.limits };
  await using stack = new AsyncDisposableStack();
  const lock = stack.use(await lockDirectories('control', config));
  // Closed after all the rest: until other controls have the runners, requests for them are answered, and may be sent again.
  const front = stack.use(new AsyncDisposableStack());
  const rules = openRules(config, log);
  const storage = await openStorage(config, { limits, clock, log }, stack);
  const { db, events, webhooks, lease, ownership, databaseHealth, organizationAudit } = storage;
  const network = await openNetwork(config, { ...storage, log }, stack);
  const objects = await openObjects(config, log, stack);
  const metrics = new ServiceMetrics({ ...network, version: config.version, log });
  const settings = { ...chooseSandboxSettings(config), limits };
  const base = { ...storage, ...settings, ...network, objects, rules, clock, metrics, log };
  const live = await startSandboxes(base, stack);
  await live.fleet.start();
  const gate = new Gate(storage.assertUsable);
  let address = '';
  const access = openAccess(config, { ...storage, gate, limits, limitsOf: live.limitsOf, log }, stack);
  const exposed = openPorts(config, { ...storage, ...live, ownAddress: () => new URL(address) }, stack);
  if (config.metricsToken !== undefined) watchState(metrics, { ...storage, ...access, ...network, ...live });
  const idempotency = new Idempotency(db, ownership.id, log);
  const purged = [idempotency, exposed.previews, access.accounts.sessions, access.usedTickets];
  const shared = [...purged, ...live.purged, ...storage.purged];
  purgeHourly({ ...storage, shared, own: [live.buildKeeper], log }, stack);
  const common = { ...network, db, organizationAudit, rules, idempotency, metrics, limits, ...sites };
  const parts = {
    ...access,
    ...live,
    ...exposed,
    ...common,
    events,
    webhooks,
    secretDigest: new SecretDigest(storage.masterKey),
    outputBudget: new OutputBudget(limits.execOutputTotalBytes),
    ...chooseHttpSettings(config),
    exposure: chooseExposure(config, tls),
    ...buildHealth({ ...network, gate, databaseHealth }),
  };
  const server = await buildServer(parts, log);
  const publish = await listenInternally(config, { ...network, ownership, app: server.app }, front);
  closeInOrder(server.app, { ...access, ...config, ...live, ownership, limits, log }, { stack, front });
  address = toAddress(await server.app.listen(config.listen), tls);
  // Last: a key made by a start that then fails would never be shown.
  const bootstrap = await bootstrapOrganization(db, organizationAudit, config);
  gate.open();
  await publish();
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

function toAddress(listening: string, tls: TlsPair | undefined): string {
  return tls === undefined ? listening : listening.replace(/^http:/u, 'https:');
}

function chooseSandboxSettings({ region, dataDir, diskReserveMiB, creditCents, objectStore }: ControlConfig) {
  return { region, dataDir, diskReserveMiB, creditCents, hasBucket: objectStore?.kind === 's3' };
}

function chooseExposure(
  { hstsSeconds, trustedProxies, corsOrigins }: ControlConfig,
  tls: TlsPair | undefined,
): Exposure {
  return { tls, hstsSeconds, trustedProxies, corsOrigins };
}

function chooseHttpSettings({ version, region, metricsToken, continuesTraces = false }: ControlConfig) {
  return { version, region, metricsToken, continuesTraces };
}

interface ClosingParts extends Pick<ControlConfig, 'internalListen'> {
  openRequests: OpenRequests;
  fleet: Pick<RunnerFleet, 'leave'>;
  ownership: Pick<ControlLease, 'leave'>;
  limits: ControlLimits;
  log: Logger;
}

/**
 * On disposal requests in progress may finish until the deadline; then the front is closed with their connections. New requests
 * get 503 until then, and if all have finished, until other controls may take the runners. Meanwhile this one gets no others.
 */
function closeInOrder(
  app: App,
  { openRequests, fleet, ownership, internalListen, limits, log }: ClosingParts,
  { stack, front }: { stack: AsyncDisposableStack; front: AsyncDisposableStack },
): void {
  front.adopt(app, async (open) => {
    // Other controls serve the same clients.
    if (internalListen !== undefined) await stopListening(open.server);
    await open.close();
  });
  stack.defer(async () => {
    fleet.leave();
    const left = ownership.leave();
    const isDrained = await openRequests.drain(limits.shutdownDeadlineMs);
    if (!isDrained) {
      log.warn('shutting down with requests still open');
      await front.disposeAsync();
    }
    await left;
  });
}

function openObjects(
  { dataDir, objectStore = { kind: 'directory' } }: ControlConfig,
  log: Logger,
  stack: AsyncDisposableStack,
): Promise<ObjectStore> {
  return openObjectStore(objectStore, { directory: join(dataDir, OBJECTS_DIRECTORY), log }, stack);
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
    controls,
    openRequests,
    pool,
    fleet,
    requestForwarder,
  }: Pick<Storage, 'db' | 'ownership' | 'controls' | 'pool'> &
    Pick<ControlCounts, 'fleet' | 'requestForwarder'> & { openRequests: OpenRequests },
): void {
  const state = {
    countSandboxes: () => countSandboxes(db, ownership.id),
    openRequests: () => openRequests.counts,
    databasePool: () => ({ size: pool.totalCount, idle: pool.idleCount, waiting: pool.waitingCount }),
  };
  metrics.watch(state, { id: ownership.id, controls, lease: ownership, fleet, requestForwarder });
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
  readonly #assertHeld: () => void;
  #isOpen = false;

  constructor(assertHeld: () => void) {
    this.#assertHeld = assertHeld;
  }

  open(): void {
    this.#isOpen = true;
  }

  assertOpen(): void {
    if (!this.#isOpen) throw new AppError('unavailable', 'the service is starting');
    this.#assertHeld();
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
      runners.requireAccelerator();
    },
    getAccelerator: () => runners.requireAccelerator(),
  };
}
