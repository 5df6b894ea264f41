/** Assembles the parts of control that manage sandboxes. */
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { ObjectStore } from '../lib/objects/object-store.ts';
import { KeyedQueue } from '../lib/waiting/keyed-queue.ts';
import { AuditArchive } from './audit/audit-archive.ts';
import { AuditLog } from './audit/audit-log.ts';
import { EntriesElsewhere } from './audit/entries-elsewhere.ts';
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
import type { ChangeHints } from './db/change-hints.ts';
import type { Database } from './db/database.ts';
import type { Events } from './events/events.ts';
import type { NoteStart } from './sandbox/live/start-note.ts';
import { startDisks } from './disks/start-disks.ts';
import { EgressKeeper, type FindSandbox } from './egress/egress-keeper.ts';
import { EgressNotes } from './egress/egress-notes.ts';
import type { EgressRules } from './egress/egress-rules.ts';
import { Grants } from './egress/grants.ts';
import { NamedSecretStore } from './egress/named-secrets/named-secret-store.ts';
import { NamedSecrets } from './egress/named-secrets/named-secrets.ts';
import { SecretWatch } from './egress/named-secrets/secret-watch.ts';
import { SecretValues } from './egress/named-secrets/secret-values.ts';
import { GrantStore } from './egress/grant-store.ts';
import { BuildContexts } from './image-builds/build-contexts.ts';
import { BuildKeeper } from './image-builds/build-keeper.ts';
import { BuildSandboxes } from './image-builds/build-sandboxes.ts';
import { ContextStore } from './image-builds/context-store.ts';
import { BuildStore } from './image-builds/build-store.ts';
import { makeSearches } from './image-builds/copy-sources.ts';
import { ImageBuilds, type ImageBuildsParts } from './image-builds/image-builds.ts';
import { StepCache } from './image-builds/step-cache.ts';
import { BuiltImages } from './images/built-images.ts';
import { ImageUses } from './images/image-uses.ts';
import { OrganizationLimits, type LimitsOf } from './limits/organization-limits.ts';
import type { ServiceMetrics } from './metrics/service-metrics.ts';
import type { RunnerClient } from './placement/runner-client.ts';
import type { RunnerCommands } from './placement/runner-commands.ts';
import type { FindElsewhere, Runners } from './runners/runners.ts';
import { FleetImages } from './images/fleet-images.ts';
import type { RunnerClaims } from './ownership/runner-claims.ts';
import type { Ownership } from './ownership/ownership.ts';
import { Registries } from './registries/registries.ts';
import { RegistryStore } from './registries/registry-store.ts';
import type { Clock } from './time/clock.ts';
import { FamilyStore } from './sandbox/record/family-store.ts';
import { Environments } from './sandbox/environment/environments.ts';
import { LeftSandboxes } from './sandbox/live/left-sandboxes.ts';
import { LiveDrivers, type LiveDriversParts } from './sandbox/live/live-drivers.ts';
import { ResumePlaces } from './sandbox/live/resume-places.ts';
import { openFleet } from './open-fleet.ts';
import type { RunnerFleetParts } from './sandbox/runner-fleet.ts';
import { SandboxStore } from './sandbox/record/sandbox-store.ts';
import { Sandboxes } from './sandbox/sandboxes.ts';
import type { SecretBox } from './secrets/secret-box.ts';
import type { CaptureKeeperParts } from './snapshots/capture-keeper.ts';
import { CaptureObjectStore } from './snapshots/capture-object-store.ts';
import { SnapshotStore } from './snapshots/snapshot-store.ts';
import { Snapshots } from './snapshots/snapshots.ts';

/** Of asking a guest for its commands. */
const MAX_RETRY_MS = 1_000;

export interface SandboxesBase {
  db: Database;
  events: Events;
  hints: ChangeHints;
  ownership: Ownership;
  claims: RunnerClaims;
  connect: RunnerFleetParts['connect'];
  /** The runner of this machine. */
  local: RunnerClient;
  runners: Runners;
  nodeId: string;
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

/** Adopts the live sandboxes of the runner of this machine, and builds the links with the runners, which are not started yet. */
export async function startSandboxes(base: SandboxesBase, stack: AsyncDisposableStack) {
  const { db, runners, secrets, region, limits, creditCents, clock, metrics, log } = base;
  const ownLimits = stack.use(new OrganizationLimits({ db, defaults: limits, log }));
  await ownLimits.start();
  const limitsOf = ownLimits.of;
  const credit = new Credit({ db, clock, welcomeCents: creditCents });
  const store = new SandboxStore(db);
  const { fleetImages, ...images } = openImages(base);
  const { registries, imageUses, builtImages } = images;
  const family = new FamilyStore(db);
  const { audit, auditStore, teamSecrets, archive } = openAudit(base, stack);
  const { named, ...egress } = openEgress(base, { audit, find: (id) => drivers.find(id) }, stack);
  const { grants, notes, egressKeeper } = egress;
  const environments = new Environments({ secrets, grants, store });
  const disks = await startDisks(
    { db, runners, ownership: base.ownership, audit, clock, limits, limitsOf, log },
    stack,
  );
  const runnerOf = (id: string): RunnerClient => drivers.runnerOf(id);
  const { watch, commandParts } = openCommands(base, { audit, runnerOf }, stack);
  const common = { runners, store, clock };
  const driverParts = { ...common, ...egress, audit, teamSecrets, limits, credit, limitsOf, log };
  const onEnded = (): void => archive.wake();
  const noteStart: NoteStart = (note) => metrics.starts.note(note);
  const ofDisks = { disks: disks.sandboxDisks };
  const moving = prepareMoves(base, watch);
  const drivers = stack.use(
    new LiveDrivers({ ...driverParts, ...followCommands(watch), ...ofDisks, ...moving, onEnded, noteStart }),
  );
  const used = { ...images, family, credit, grants, audit, environments, disks: disks.sandboxDisks };
  const left = new LeftSandboxes({ ...common, ...moving, drivers });
  const placing = { ...moving, left };
  const sandboxes = new Sandboxes({ ...common, ...used, ...placing, drivers, region });
  const commands = new Commands({ ...commandParts, sandboxes, environments });
  const { snapshots, captures } = openSnapshots(base, { audit, store, environments, limitsOf });
  const linkParts = { store, drivers, notes, egressKeeper, ...limits, log };
  const fleet = openFleet(base, { drivers, watch, linkParts, captures }, stack);
  await fleet.open();
  archive.wake();
  startCreditKeeper(base, { credit, drivers }, stack);
  const buildParts = { images: builtImages, registries, sandboxes, commands, runnerOf };
  const built = await openBuilds(base, { ...buildParts, fleetImages }, stack);
  const billing = new Billing({ db, clock, credit });
  const budgets = openBudgets(base, stack);
  const kept = { ...named, ...built, audit, auditStore, teamSecrets, imageUses, builtImages };
  const records = { sandboxes, commands, snapshots, registries, grants, environments, ...kept };
  return {
    ...records,
    disks: disks.disks,
    diskSnapshots: disks.snapshots,
    fleet,
    fleetImages,
    runnerOf,
    billing,
    budgets,
    limitsOf,
  };
}

interface Images {
  fleetImages: FleetImages;
  registries: Registries;
  imageUses: ImageUses;
  builtImages: BuiltImages;
}

function openImages(base: SandboxesBase): Images {
  const { db, claims, runners, organizationAudit: audit, clock, log } = base;
  const fleetImages = new FleetImages(runners);
  const isOwned = (id: string): Promise<boolean> => claims.isOwned(id);
  return {
    fleetImages,
    registries: openRegistries(base),
    imageUses: new ImageUses(db, log),
    builtImages: new BuiltImages({
      db,
      audit,
      fleet: fleetImages,
      objects: new CaptureObjectStore(db),
      isOwned,
      clock,
      log,
    }),
  };
}

/** Hibernated sandboxes may change their runner, and their control. */
function prepareMoves(
  { db, runners, claims, connect, ownership: { id: control } }: SandboxesBase,
  watch: CommandWatch,
) {
  const captureObjects = new CaptureObjectStore(db);
  const findElsewhere: FindElsewhere = (shape) => claims.findRoomElsewhere(shape);
  const isShared = connect !== undefined;
  const places = new ResumePlaces({ runners, captureObjects, findElsewhere, isShared });
  return { control, claims, captureObjects, places, beforeAdopt: () => watch.load() };
}

/** Tells the watch of commands what becomes of each sandbox. */
function followCommands(
  watch: CommandWatch,
): Pick<LiveDriversParts, 'onEnding' | 'onState' | 'onRolledBack' | 'onUnloaded'> {
  return {
    onUnloaded: (id) => watch.forget(id),
    onEnding: (id) => watch.ending(id),
    onState: (row) => watch.follow(row),
    onRolledBack: (row) => watch.rolledBack(row),
  };
}

interface BuildRecords {
  contexts: BuildContexts;
  imageBuilds: ImageBuilds;
  buildKeeper: BuildKeeper;
  /** For the hourly removal of what is old. */
  purged: readonly { purge: () => Promise<void> }[];
}

interface BuildsBase extends Pick<ImageBuildsParts, 'images' | 'registries' | 'commands' | 'runnerOf'> {
  sandboxes: Sandboxes;
  fleetImages: FleetImages;
}

/** Ends the builds that a killed control has left, and begins to clean up after builds. */
async function openBuilds(
  { db, ownership, organizationAudit, dataDir, diskReserveMiB, runners, limits, clock, log }: SandboxesBase,
  { sandboxes: all, fleetImages: fleet, ...parts }: BuildsBase,
  stack: AsyncDisposableStack,
): Promise<BuildRecords> {
  const contextStore = new ContextStore(db, ownership.id);
  const contexts = stack.use(
    new BuildContexts(join(dataDir, 'build-contexts'), contextStore, { diskReserveMiB }),
  );
  const store = new BuildStore(db, organizationAudit);
  const sandboxes = new BuildSandboxes(all);
  const cache = new StepCache({ db, images: parts.images, fleet, clock, log });
  const keeper = stack.use(
    new BuildKeeper({ ownership, store, images: parts.images, sandboxes, clock, log }),
  );
  const queues = { turns: new KeyedQueue(), searches: makeSearches() };
  const shared = { store, cache, contexts, sandboxes, keeper, ...queues };
  const imageBuilds = stack.use(
    new ImageBuilds({ ...parts, ...shared, ownership, runners, limits, clock, log }),
  );
  await keeper.start();
  return { contexts, imageBuilds, buildKeeper: keeper, purged: [store, cache, contextStore] };
}

function openRegistries({ db, organizationAudit: audit, secrets, log }: SandboxesBase): Registries {
  return new Registries({ db, audit, store: new RegistryStore(db), secrets, log });
}

function openAudit(
  { db, events, ownership, secrets, objects, clock, log }: SandboxesBase,
  stack: AsyncDisposableStack,
): { audit: AuditLog; auditStore: AuditStore; teamSecrets: TeamSecrets; archive: AuditArchive } {
  const auditStore = new AuditStore(db);
  const teamSecrets = new TeamSecrets(db, secrets);
  const onWritten = (): void => events.sequencer.wake();
  const audit = new AuditLog({ db, store: auditStore, secrets: teamSecrets, clock, onWritten, log });
  stack.use(new EntriesElsewhere({ db, audit, log }));
  const archive = stack.use(
    new AuditArchive({ leadership: ownership, store: auditStore, objects, clock, log }),
  );
  return { audit, auditStore, teamSecrets, archive };
}

interface EgressParts {
  grants: Grants;
  notes: EgressNotes;
  egressKeeper: EgressKeeper;
  named: { namedSecrets: NamedSecrets; secretValues: SecretValues };
}

function openEgress(
  { db, hints, connect, ownership: { id: control }, secrets, organizationAudit, rules, log }: SandboxesBase,
  { audit, find }: { audit: AuditLog; find: FindSandbox },
  stack: AsyncDisposableStack,
): EgressParts {
  const store = new NamedSecretStore(db);
  const secretValues = new SecretValues({ store, secrets });
  const grants = new Grants({ store: new GrantStore(db), secrets, values: secretValues, rules });
  const notes = new EgressNotes({ db, audit, log });
  const egressKeeper = new EgressKeeper(log);
  const tell = (ids: readonly string[]): Promise<void> => egressKeeper.tellAtOnce(ids, find);
  const namedSecrets = new NamedSecrets({ db, audit: organizationAudit, store, secrets, tell, control });
  // A control that is alone has stored every value itself, and sends all of them after a start.
  if (connect !== undefined) {
    const watch = stack.use(new SecretWatch({ store, control, tell, log }));
    stack.use(hints.on('secrets', () => watch.wake()));
  }
  return { grants, notes, egressKeeper, named: { namedSecrets, secretValues } };
}

function openCommands(
  { db, limits, clock, log }: SandboxesBase,
  { audit, runnerOf }: { audit: AuditLog; runnerOf: (sandboxId: string) => RunnerClient },
  stack: AsyncDisposableStack,
): { watch: CommandWatch; commandParts: Omit<CommandsParts, 'sandboxes' | 'environments'> } {
  const parts = { store: new CommandStore(db), audit, clock };
  const retryMs = Math.min(MAX_RETRY_MS, limits.reconcileIntervalMs);
  const commandsOf = (sandboxId: string): RunnerCommands => runnerOf(sandboxId).commands;
  const watch = stack.use(new CommandWatch({ ...parts, commandsOf, retryMs, log }));
  return { watch, commandParts: { ...parts, runnerOf, watch, limits } };
}

interface SnapshotsBase {
  audit: AuditLog;
  store: SandboxStore;
  environments: Environments;
  limitsOf: LimitsOf;
}

function openSnapshots(
  { db, runners, limits, clock, log }: SandboxesBase,
  { audit, store: sandboxes, environments, limitsOf }: SnapshotsBase,
): { snapshots: Snapshots; captures: Omit<CaptureKeeperParts, 'runner' | 'leadership'> } {
  const saved = { store: new SnapshotStore(db), audit, clock, log };
  const snapshots = new Snapshots({ ...saved, runners, environments, limitsOf });
  return { snapshots, captures: { ...saved, snapshots, sandboxes, graceMs: limits.captureGraceMs } };
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
  { db, events, ownership: leadership, clock, organizationAudit: audit, limits, log }: SandboxesBase,
  stack: AsyncDisposableStack,
): Budgets {
  const onEvent = (): void => events.sequencer.wake();
  const { accountIntervalMs: intervalMs } = limits;
  const keeper = stack.use(new BudgetKeeper({ db, leadership, clock, intervalMs, onEvent, log }));
  keeper.start();
  return new Budgets({ db, clock, audit, onChange: (id) => keeper.wake(id) });
}
