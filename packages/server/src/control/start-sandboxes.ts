/** Assembles the parts of control that manage sandboxes. */
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { ObjectStore } from '../lib/objects/object-store.ts';
import { KeyedQueue } from '../lib/waiting/keyed-queue.ts';
import { AuditArchive } from './audit/audit-archive.ts';
import { AuditLog } from './audit/audit-log.ts';
import { AuditStore } from './audit/audit-store.ts';
import type { OrganizationAudit } from './audit/organization/organization-audit.ts';
import { TeamSecrets } from './audit/team-secrets.ts';
import { Billing } from './billing/billing.ts';
import { BudgetKeeper } from './billing/budgets/budget-keeper.ts';
import { Budgets } from './billing/budgets/budgets.ts';
import { Credit } from './billing/credit/credit.ts';
import { CreditKeeper } from './billing/credit/credit-keeper.ts';
import { CommandStore } from './commands/command-store.ts';
import { CommandWatch } from './commands/command-watch.ts';
import { Commands, type CommandsParts } from './commands/commands.ts';
import type { ControlLimits } from './control-config.ts';
import type { Database } from './db/database.ts';
import type { Events } from './events/events.ts';
import { startDisks } from './disks/start-disks.ts';
import { EgressKeeper, type FindSandbox } from './egress/egress-keeper.ts';
import { EgressNotes } from './egress/egress-notes.ts';
import type { EgressRules } from './egress/egress-rules.ts';
import { Grants } from './egress/grants.ts';
import { NamedSecretStore } from './egress/named-secrets/named-secret-store.ts';
import { NamedSecrets } from './egress/named-secrets/named-secrets.ts';
import { SecretValues } from './egress/named-secrets/secret-values.ts';
import { GrantStore } from './egress/grant-store.ts';
import { BuildContexts } from './image-builds/build-contexts.ts';
import { BuildKeeper } from './image-builds/build-keeper.ts';
import { BuildSandboxes } from './image-builds/build-sandboxes.ts';
import { BuildStore } from './image-builds/build-store.ts';
import { makeSearches } from './image-builds/copy-sources.ts';
import { ImageBuilds, type ImageBuildsParts } from './image-builds/image-builds.ts';
import { StepCache } from './image-builds/step-cache.ts';
import { BuiltImages } from './images/built-images.ts';
import { ImageUses } from './images/image-uses.ts';
import { OrganizationLimits, type LimitsOf } from './limits/organization-limits.ts';
import type { ServiceMetrics } from './metrics/service-metrics.ts';
import type { RunnerClient } from './placement/runner-client.ts';
import type { ControlLease } from './ownership/control-lease.ts';
import { RunnerClaims } from './ownership/runner-claims.ts';
import { RunnerPresence } from './sandbox/runner-presence.ts';
import { Registries } from './registries/registries.ts';
import { RegistryStore } from './registries/registry-store.ts';
import type { Clock } from './time/clock.ts';
import { FamilyStore } from './sandbox/record/family-store.ts';
import { Environments } from './sandbox/environment/environments.ts';
import { LiveDrivers } from './sandbox/live/live-drivers.ts';
import { RunnerLink } from './sandbox/runner-link.ts';
import { SandboxStore } from './sandbox/record/sandbox-store.ts';
import { Sandboxes } from './sandbox/sandboxes.ts';
import type { SecretBox } from './secrets/secret-box.ts';
import { CaptureObjectStore } from './snapshots/capture-object-store.ts';
import { CaptureStorage } from './snapshots/capture-storage.ts';
import { CaptureKeeper } from './snapshots/capture-keeper.ts';
import { SnapshotStore } from './snapshots/snapshot-store.ts';
import { Snapshots } from './snapshots/snapshots.ts';

/** Of asking a guest for its commands. */
const MAX_RETRY_MS = 1_000;

export interface SandboxesBase {
  db: Database;
  events: Events;
  ownership: Pick<ControlLease, 'id'>;
  runner: RunnerClient;
  secrets: SecretBox;
  objects: ObjectStore;
  /** Whether the objects are in a bucket; then captures are put there, too. */
  hasBucket: boolean;
  region: string;
  /** Absolute path. */
  dataDir: string;
  diskReserveMiB: number | undefined;
  limits: ControlLimits;
  organizationAudit: OrganizationAudit;
  creditCents: number | undefined;
  rules: EgressRules;
  clock: Clock;
  metrics: Pick<ServiceMetrics, 'starts'>;
  log: Logger;
}

/** Loads the live sandboxes and builds the link that reconciles them with the runner. The link is not started yet. */
export async function startSandboxes(base: SandboxesBase, stack: AsyncDisposableStack) {
  const { db, runner, secrets, region, limits, creditCents, clock, metrics, log } = base;
  const ownLimits = stack.use(new OrganizationLimits({ db, defaults: limits, log }));
  await ownLimits.start();
  const limitsOf = ownLimits.of;
  const credit = new Credit({ db, clock, welcomeCents: creditCents });
  const store = new SandboxStore(db);
  const registries = openRegistries(base);
  const imageUses = new ImageUses(db, log);
  const { organizationAudit } = base;
  const builtImages = new BuiltImages({ db, audit: organizationAudit, runner: runner.images, clock, log });
  const family = new FamilyStore(db);
  const { audit, auditStore, teamSecrets, archive } = openAudit(base, stack);
  const { named, ...egress } = openEgress(base, audit, (id) => drivers.find(id));
  const { grants, notes, egressKeeper } = egress;
  const environments = new Environments({ secrets, grants, store });
  const disks = await startDisks({ db, runner: runner.disks, audit, clock, limits, limitsOf, log }, stack);
  const { watch, commandParts } = await openCommands(base, audit, stack);
  const presence = new RunnerPresence(clock);
  const common = { runner, store, clock, presence };
  const drivers = stack.use(
    new LiveDrivers({
      ...common,
      ...egress,
      audit,
      teamSecrets,
      limits,
      credit,
      limitsOf,
      log,
      onEnded: () => archive.wake(),
      onEnding: (id) => watch.ending(id),
      onState: (row) => watch.follow(row),
      onRolledBack: (row) => watch.rolledBack(row),
      noteStart: (note) => metrics.starts.note(note),
      disks: disks.sandboxDisks,
    }),
  );
  await drivers.load();
  archive.wake();
  startCreditKeeper(base, { credit, drivers }, stack);
  const images = { registries, imageUses, builtImages };
  const used = { ...images, family, credit, grants, audit, environments, disks: disks.sandboxDisks };
  const sandboxes = new Sandboxes({ ...common, ...used, drivers, region });
  const commands = new Commands({ ...commandParts, sandboxes, environments });
  const { snapshots, captures } = openSnapshots(base, { audit, store, environments, limitsOf });
  startCaptureStorage(base, presence, stack);
  const claims = new RunnerClaims(db, base.ownership.id);
  const linkParts = { ...common, claims, region, drivers, captures, notes, egressKeeper, ...limits, log };
  const link = stack.use(new RunnerLink(linkParts));
  const built = await openBuilds(base, { images: builtImages, registries, sandboxes, commands }, stack);
  const billing = new Billing({ db, clock, credit });
  const budgets = openBudgets(base, stack);
  const kept = { ...named, ...built, audit, auditStore, teamSecrets, imageUses, builtImages };
  const records = { sandboxes, commands, snapshots, registries, grants, environments, ...kept };
  return { ...records, disks: disks.disks, diskSnapshots: disks.snapshots, link, billing, budgets, limitsOf };
}

interface BuildRecords {
  contexts: BuildContexts;
  imageBuilds: ImageBuilds;
  /** For the hourly removal of what is old. */
  purged: readonly { purge: () => Promise<void> }[];
}

interface BuildsBase extends Pick<ImageBuildsParts, 'images' | 'registries' | 'commands'> {
  sandboxes: Sandboxes;
}

/** Ends the builds that a killed control has left, and begins to clean up after builds. */
async function openBuilds(
  { db, organizationAudit, dataDir, diskReserveMiB, runner, limits, clock, log }: SandboxesBase,
  { sandboxes: all, ...parts }: BuildsBase,
  stack: AsyncDisposableStack,
): Promise<BuildRecords> {
  const contexts = stack.use(new BuildContexts(join(dataDir, 'build-contexts'), { diskReserveMiB }));
  const store = new BuildStore(db, organizationAudit);
  const sandboxes = new BuildSandboxes(all);
  const cache = new StepCache({ db, images: parts.images, runner: runner.images, clock, log });
  const keeper = stack.use(new BuildKeeper({ store, images: parts.images, sandboxes, clock, log }));
  const queues = { turns: new KeyedQueue(), searches: makeSearches() };
  const shared = { store, cache, contexts, sandboxes, keeper, ...queues };
  const imageBuilds = stack.use(new ImageBuilds({ ...parts, ...shared, runner, limits, clock, log }));
  await keeper.start();
  return { contexts, imageBuilds, purged: [store, cache, keeper] };
}

function openRegistries({ db, organizationAudit: audit, secrets, log }: SandboxesBase): Registries {
  return new Registries({ db, audit, store: new RegistryStore(db), secrets, log });
}

function openAudit(
  { db, events, secrets, objects, clock, log }: SandboxesBase,
  stack: AsyncDisposableStack,
): { audit: AuditLog; auditStore: AuditStore; teamSecrets: TeamSecrets; archive: AuditArchive } {
  const auditStore = new AuditStore(db);
  const teamSecrets = new TeamSecrets(db, secrets);
  const onWritten = (): void => events.sequencer.wake();
  const audit = new AuditLog({ db, store: auditStore, secrets: teamSecrets, clock, onWritten, log });
  const archive = stack.use(new AuditArchive({ store: auditStore, objects, clock, log }));
  return { audit, auditStore, teamSecrets, archive };
}

interface EgressParts {
  grants: Grants;
  notes: EgressNotes;
  egressKeeper: EgressKeeper;
  named: { namedSecrets: NamedSecrets; secretValues: SecretValues };
}

function openEgress(
  { db, secrets, organizationAudit, rules, log }: SandboxesBase,
  audit: AuditLog,
  find: FindSandbox,
): EgressParts {
  const store = new NamedSecretStore(db);
  const secretValues = new SecretValues({ store, secrets });
  const grants = new Grants({ store: new GrantStore(db), secrets, values: secretValues, rules });
  const notes = new EgressNotes({ db, audit, log });
  const egressKeeper = new EgressKeeper(log);
  const tell = (ids: readonly string[]): Promise<void> => egressKeeper.tellAtOnce(ids, find);
  const namedSecrets = new NamedSecrets({ db, audit: organizationAudit, store, secrets, tell });
  return { grants, notes, egressKeeper, named: { namedSecrets, secretValues } };
}

async function openCommands(
  { db, runner, limits, clock, log }: SandboxesBase,
  audit: AuditLog,
  stack: AsyncDisposableStack,
): Promise<{ watch: CommandWatch; commandParts: Omit<CommandsParts, 'sandboxes' | 'environments'> }> {
  const parts = { runner: runner.commands, store: new CommandStore(db), audit, clock };
  const retryMs = Math.min(MAX_RETRY_MS, limits.reconcileIntervalMs);
  const watch = stack.use(new CommandWatch({ ...parts, retryMs, log }));
  await watch.load();
  return { watch, commandParts: { ...parts, watch, limits } };
}

interface SnapshotsBase {
  audit: AuditLog;
  store: SandboxStore;
  environments: Environments;
  limitsOf: LimitsOf;
}

function openSnapshots(
  { db, runner, limits, clock, log }: SandboxesBase,
  { audit, store: sandboxes, environments, limitsOf }: SnapshotsBase,
): { snapshots: Snapshots; captures: CaptureKeeper } {
  const saved = { store: new SnapshotStore(db), captures: runner.captures, audit, clock, log };
  const snapshots = new Snapshots({ ...saved, environments, limitsOf });
  const captures = new CaptureKeeper({ ...saved, snapshots, sandboxes, graceMs: limits.captureGraceMs });
  return { snapshots, captures };
}

function startCaptureStorage(
  { db, runner, hasBucket, limits, clock, log }: SandboxesBase,
  presence: RunnerPresence,
  stack: AsyncDisposableStack,
): void {
  if (!hasBucket) return;
  const store = new CaptureObjectStore(db);
  const { captures } = runner;
  const { reconcileIntervalMs: intervalMs } = limits;
  stack.use(new CaptureStorage({ store, captures, presence, clock, intervalMs, log })).start();
}

function startCreditKeeper(
  { db, events, limits, log }: SandboxesBase,
  { credit, drivers }: { credit: Credit; drivers: LiveDrivers },
  stack: AsyncDisposableStack,
): void {
  const { creditGraceMs: graceMs, accountIntervalMs: intervalMs } = limits;
  const onEvent = (): void => events.sequencer.wake();
  stack.use(new CreditKeeper({ credit, db, drivers, intervalMs, graceMs, onEvent, log })).start();
}

function openBudgets(
  { db, events, clock, organizationAudit: audit, limits, log }: SandboxesBase,
  stack: AsyncDisposableStack,
): Budgets {
  const onEvent = (): void => events.sequencer.wake();
  const keeper = stack.use(
    new BudgetKeeper({ db, clock, intervalMs: limits.accountIntervalMs, onEvent, log }),
  );
  keeper.start();
  return new Budgets({ db, clock, audit, onChange: (id) => keeper.wake(id) });
}
