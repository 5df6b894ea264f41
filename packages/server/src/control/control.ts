/** The control role, put together: the only place where its parts meet. */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { join } from 'node:path';
import { lockDirectories } from '../lib/process/instance-lock.ts';
import { DirectoryObjects } from '../lib/objects/directory-objects.ts';
import type { TlsPair } from '../lib/tls/tls-pair.ts';
import { buildAccounts } from './accounts/accounts.ts';
import { buildAuthenticator, type Authenticate } from './auth/authenticator.ts';
import { bootstrapOrganization } from './accounts/bootstrap.ts';
import type { Bootstrapped } from './accounts/bootstrapped.ts';
import { KeyEnds } from './auth/key-ends.ts';
import { KeyGuesses } from './auth/key-guesses.ts';
import { KeyUses } from './auth/key-uses.ts';
import { Tickets } from './auth/tickets.ts';
import { DEFAULT_CONTROL_LIMITS, type ControlConfig, type ControlLimits } from './control-config.ts';
import { connectDatabase } from './db/connect-database.ts';
import { DatabaseLease } from './db/database-lease.ts';
import { DatabaseHealth } from './db/database-health.ts';
import { openDatabase } from './db/database.ts';
import { InstallationGuard } from './db/installation-guard.ts';
import { migrateDatabase } from './schema/migrate.ts';
import { BUILTIN_SERVICES } from '../lib/credential-services/builtin-services.ts';
import { EgressRules, type EgressSettings } from './egress/egress-rules.ts';
import { SecretDigest } from './egress/secret-digest.ts';
import { OpenRequests } from './http/access/open-requests.ts';
import { buildServer } from './http/server.ts';
import { RateLimiter } from './limits/rate-limiter.ts';
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
import { MASTER_KEY_NAME, openMasterKeys } from './secrets/master-key.ts';
import { SecretBox } from './secrets/secret-box.ts';
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
  /** New connections get this certificate. Only for a control that was started with one. */
  setTls: (pair: TlsPair) => void;
  /** What was made at this start, as nobody could know it: show it once. */
  bootstrap: Bootstrapped;
  /** Settles when it may serve no longer, although nobody asked it to stop. */
  lost: Promise<Error>;
}

/** What configuration cannot hold. */
export interface ControlMeans {
  tls?: TlsPair | undefined;
  /** By which sandboxes live, are billed and end; a simulation brings its own. */
  clock?: Clock;
}

/**
 * Starts the control role; it serves when this resolves. Disposing it shuts down: new requests get 503, open ones may
 * end until the deadline, sandboxes live on, the database goes last.
 */
export async function startControl(
  config: ControlConfig,
  log: Logger,
  { tls, clock = SYSTEM_CLOCK }: ControlMeans = {},
): Promise<Control> {
  const limits: ControlLimits = { ...DEFAULT_CONTROL_LIMITS, ...config.limits };
  await using stack = new AsyncDisposableStack();
  const lock = stack.use(await lockDirectories('control', config));
  const rules = openRules(config, log);
  const { current: masterKey, older } = openMasterKeys(join(config.dataDir, MASTER_KEY_NAME));
  const secrets = new SecretBox(masterKey, older);
  const connection = await connectDatabase(config, stack, log);
  const guard = new InstallationGuard(log);
  const patienceMs = limits.databasePatienceMs;
  const lease = stack.use(await DatabaseLease.acquire({ connection, guard, log, patienceMs }));
  await migrateDatabase(connection, log, guard);
  const assertUsable = (): void => lease.assertHeld();
  const db = stack.adopt(openDatabase(connection, log, { assertUsable, guard }), (open) => open.destroy());
  const databaseHealth = new DatabaseHealth({ connection, guard, log });
  const runner = new RunnerClient(stack.use(new RunnerConnection(config.runnerSocket, log)));
  const objects = await DirectoryObjects.open(join(config.dataDir, OBJECTS_DIRECTORY));
  const { region, creditCents } = config;
  const base = { db, runner, secrets, objects, region, limits, creditCents, rules, clock, log };
  const live = await startSandboxes(base, stack);
  const { link, limitsOf } = live;
  await link.start();
  const idempotency = new Idempotency(db, log);
  let address = '';
  const previewOrigins = new PreviewOrigins(config.previewDomain, () => new URL(address));
  const previews = new Previews({ store: new PreviewStore(db), origins: previewOrigins, masterKey });
  const forwarder = stack.use(new PortForwarder(runner));
  const accounts = buildAccounts({ db, region, signUp: config.signUp ?? 'invited' });
  const purged = [idempotency, previews, accounts.sessions];
  const purge = setInterval(
    () => void Promise.all(purged.map((kept) => kept.purge())).catch(logPurge(log)),
    PURGE_INTERVAL_MS,
  );
  stack.defer(() => clearInterval(purge));
  const gate = new Gate(lease);
  const openRequests = new OpenRequests(limitsOf);
  const { hstsSeconds, trustedProxies, corsOrigins } = config;
  const tickets = new Tickets(masterKey);
  const server = await buildServer(
    {
      authenticate: authenticateWhile(gate, buildAuthenticator({ db, region, tickets })),
      keyGuesses: new KeyGuesses(limits.wrongKeysPerMinute),
      keyEnds: stack.use(new KeyEnds(db, log)),
      keyUses: stack.use(new KeyUses(db, log)),
      accounts,
      assertServing: () => gate.assertOpen(),
      tickets,
      ...live,
      rules,
      secretDigest: new SecretDigest(masterKey),
      runner,
      forwarder,
      previews,
      previewOrigins,
      idempotency,
      openRequests,
      rateLimiter: new RateLimiter(limitsOf),
      outputBudget: new OutputBudget(limits.execOutputTotalBytes),
      limits,
      version: config.version,
      exposure: { tls, hstsSeconds, trustedProxies, corsOrigins },
      checkHealth: () => checkHealth({ gate, databaseHealth, link }),
      getAccelerator: () => link.accelerator,
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
  const bootstrap = await bootstrapOrganization(db, config);
  gate.open();
  log.info({ address, region: config.region, version: config.version }, 'control serves');
  stack.defer(() => lock.leave());
  const owned = stack.move();
  return {
    address,
    setTls: (pair) => server.tls?.setPair(pair),
    lost: lease.taken,
    bootstrap,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function openRules(config: ControlConfig, log: Logger): EgressRules {
  const settings = config.egress ?? BUILTIN_EGRESS;
  const rules = new EgressRules(settings);
  if (settings.replacedServices.length > 0)
    log.warn({ services: settings.replacedServices }, 'credential services are not where they usually are');
  for (const warning of rules.warnings) log.warn({ warning }, 'a rule of a network profile changes nothing');
  return rules;
}

/**
 * Closed until the start is done, and while the database is not ours. A start listens before a configured key or invitation is
 * in the database: nobody is to be told meanwhile that it is wrong.
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

/** Also what needs no query to be let in. */
function authenticateWhile(gate: Gate, authenticate: Authenticate): Authenticate {
  return async (credential) => {
    gate.assertOpen();
    return authenticate(credential);
  };
}

function logPurge(log: Logger): (error: unknown) => void {
  return (error) =>
    log.warn({ err: error }, 'old Idempotency-Keys, preview links or sessions are still there');
}

interface HealthParts {
  gate: Gate;
  databaseHealth: DatabaseHealth;
  link: RunnerLink;
}

async function checkHealth({ gate, databaseHealth, link }: HealthParts): Promise<void> {
  await databaseHealth.check();
  gate.assertOpen();
  if (!link.isConnected) throw new AppError('unavailable', 'the runner of this machine is not connected');
}
