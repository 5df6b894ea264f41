/** Assembles the parts of control that manage sandboxes. */
import type { Logger } from 'pino';
import type { ObjectStore } from '../lib/objects/object-store.ts';
import { AuditArchive } from './audit/audit-archive.ts';
import { AuditLog } from './audit/audit-log.ts';
import { AuditStore } from './audit/audit-store.ts';
import { TeamSecrets } from './audit/team-secrets.ts';
import { Billing } from './billing/billing.ts';
import { Credit } from './billing/credit/credit.ts';
import { CreditKeeper } from './billing/credit/credit-keeper.ts';
import { CommandStore } from './commands/command-store.ts';
import { CommandWatch, type WatchedSandbox } from './commands/command-watch.ts';
import { Commands } from './commands/commands.ts';
import type { ControlLimits } from './control-config.ts';
import type { Database } from './db/database.ts';
import { startDisks } from './disks/start-disks.ts';
import { EgressKeeper } from './egress/egress-keeper.ts';
import { EgressNotes } from './egress/egress-notes.ts';
import type { EgressRules } from './egress/egress-rules.ts';
import { Grants } from './egress/grants.ts';
import { GrantStore } from './egress/grant-store.ts';
import { ImageUses } from './images/image-uses.ts';
import { OrganizationLimits, type LimitsOf } from './limits/organization-limits.ts';
import type { RunnerClient } from './placement/runner-client.ts';
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
import { CaptureKeeper } from './snapshots/capture-keeper.ts';
import { SnapshotStore } from './snapshots/snapshot-store.ts';
import { Snapshots } from './snapshots/snapshots.ts';

export interface SandboxesBase {
  db: Database;
  runner: RunnerClient;
  secrets: SecretBox;
  objects: ObjectStore;
  region: string;
  limits: ControlLimits;
  creditCents: number | undefined;
  rules: EgressRules;
  clock: Clock;
  log: Logger;
}

/** Loads the live sandboxes and builds the link that reconciles them with the runner. The link is not started yet. */
export async function startSandboxes(base: SandboxesBase, stack: AsyncDisposableStack) {
  const { db, runner, secrets, objects, region, limits, creditCents, rules, clock, log } = base;
  const ownLimits = stack.use(new OrganizationLimits({ db, defaults: limits, log }));
  await ownLimits.start();
  const limitsOf = ownLimits.of;
  const credit = new Credit({ db, clock, welcomeCents: creditCents });
  const store = new SandboxStore(db);
  const registries = new Registries({ store: new RegistryStore(db), secrets, log });
  const imageUses = new ImageUses(db, log);
  const family = new FamilyStore(db);
  const auditStore = new AuditStore(db);
  const teamSecrets = new TeamSecrets(db, secrets);
  const audit = new AuditLog({ db, store: auditStore, secrets: teamSecrets, clock, log });
  const archive = stack.use(new AuditArchive({ store: auditStore, objects, clock, log }));
  const onEnded = (): void => archive.wake();
  const grants = new Grants({ store: new GrantStore(db), secrets, rules });
  const environments = new Environments({ secrets, grants });
  const notes = new EgressNotes({ db, audit, log });
  const egressKeeper = new EgressKeeper(log);
  const egress = { grants, notes, egressKeeper };
  const disks = await startDisks({ db, runner: runner.disks, audit, clock, limits, limitsOf, log }, stack);
  const commandStore = new CommandStore(db);
  const watch = stack.use(
    new CommandWatch({ runner: runner.commands, store: commandStore, audit, clock, log }),
  );
  await watch.load();
  const parts = {
    runner,
    store,
    audit,
    teamSecrets,
    clock,
    limits,
    credit,
    limitsOf,
    log,
    onEnded,
    onState: (row: WatchedSandbox) => watch.follow(row),
    onRolledBack: (row: WatchedSandbox) => watch.rolledBack(row),
    disks: disks.sandboxDisks,
    ...egress,
  };
  const drivers = stack.use(new LiveDrivers(parts));
  await drivers.load();
  archive.wake();
  const common = { drivers, runner, store, clock };
  startCreditKeeper(base, { credit, drivers }, stack);
  const sandboxes = new Sandboxes({
    ...common,
    region,
    registries,
    imageUses,
    family,
    credit,
    grants,
    audit,
    disks: disks.sandboxDisks,
    environments,
  });
  const commands = new Commands({
    sandboxes,
    environments,
    runner: runner.commands,
    store: commandStore,
    watch,
    audit,
    clock,
  });
  const { snapshots, captures } = openSnapshots(base, { audit, drivers, environments, limitsOf });
  const { reconcileIntervalMs } = limits;
  const link = stack.use(
    new RunnerLink({ ...common, captures, notes, egressKeeper, reconcileIntervalMs, log }),
  );
  const billing = new Billing({ db, clock, credit });
  const records = {
    sandboxes,
    commands,
    snapshots,
    registries,
    imageUses,
    audit,
    auditStore,
    teamSecrets,
    grants,
    environments,
  };
  return { ...records, disks: disks.disks, diskSnapshots: disks.snapshots, link, billing, limitsOf };
}

interface SnapshotsBase {
  audit: AuditLog;
  drivers: LiveDrivers;
  environments: Environments;
  limitsOf: LimitsOf;
}

function openSnapshots(
  { db, runner, limits, clock, log }: SandboxesBase,
  { audit, drivers, environments, limitsOf }: SnapshotsBase,
): { snapshots: Snapshots; captures: CaptureKeeper } {
  const saved = { store: new SnapshotStore(db), captures: runner.captures, audit, clock, log };
  const snapshots = new Snapshots({ ...saved, environments, limitsOf });
  const captures = new CaptureKeeper({ ...saved, snapshots, drivers, graceMs: limits.captureGraceMs });
  return { snapshots, captures };
}

function startCreditKeeper(
  { db, limits, log }: SandboxesBase,
  { credit, drivers }: { credit: Credit; drivers: LiveDrivers },
  stack: AsyncDisposableStack,
): void {
  const { creditGraceMs: graceMs, accountIntervalMs: intervalMs } = limits;
  stack.use(new CreditKeeper({ credit, db, drivers, intervalMs, graceMs, log })).start();
}
