/** Opens the links of control with its runners. */
import type { RunnerFleetParts } from './sandbox/runner-fleet.ts';
import { RunnerFleet } from './sandbox/runner-fleet.ts';
import { RunnerLink, type RunnerLinkParts } from './sandbox/runner-link.ts';
import type { CommandWatch } from './commands/command-watch.ts';
import type { ControlLimits } from './control-config.ts';
import type { ChangeHints } from './db/change-hints.ts';
import type { Database } from './db/database.ts';
import type { Ownership } from './ownership/ownership.ts';
import { RunnerBalance } from './ownership/runner-balance.ts';
import type { OwnedRunner } from './runners/owned-runner.ts';
import type { LiveDrivers } from './sandbox/live/live-drivers.ts';
import { CaptureKeeper, type CaptureKeeperParts } from './snapshots/capture-keeper.ts';
import { CaptureObjectStore } from './snapshots/capture-object-store.ts';
import { PulledImageStore } from './snapshots/pulled-image-store.ts';
import { CaptureStorage } from './snapshots/capture-storage.ts';

export interface FleetSettings extends Pick<
  RunnerFleetParts,
  'runners' | 'claims' | 'connect' | 'local' | 'region' | 'nodeId' | 'clock' | 'log'
> {
  db: Database;
  hints: ChangeHints;
  ownership: Ownership;
  /** Whether the objects are in a bucket; then captures are put there, too. */
  hasBucket: boolean;
  limits: Pick<ControlLimits, 'reconcileIntervalMs' | 'controlSettleMs'>;
}

interface FleetBase {
  drivers: LiveDrivers;
  watch: CommandWatch;
  captures: Omit<CaptureKeeperParts, 'runner' | 'leadership'>;
  linkParts: Omit<RunnerLinkParts, 'runner' | 'claims' | 'captures' | 'kind' | 'isShared'>;
}

export function openFleet(
  base: FleetSettings,
  { drivers, watch, captures, linkParts }: FleetBase,
  stack: AsyncDisposableStack,
): RunnerFleet {
  const { claims, connect, local, runners, region, nodeId, clock, log, ownership: leadership } = base;
  const openLink: RunnerFleetParts['openLink'] = (runner, kind) =>
    new RunnerLink({
      ...linkParts,
      runner,
      claims,
      kind,
      isShared: connect !== undefined,
      captures: new CaptureKeeper({ ...captures, runner, leadership }),
    });
  const beforeLoad = (): Promise<void> => watch.load();
  const parts = {
    runners,
    claims,
    balance: new RunnerBalance(base.db, {
      control: base.ownership.id,
      settleMs: base.limits.controlSettleMs,
    }),
    connect,
    leadership,
    drivers,
    local,
    region,
    nodeId,
    clock,
    log,
    openLink,
    openStorage: base.hasBucket ? (runner: OwnedRunner) => openCaptureStorage(base, runner) : undefined,
    beforeLoad,
  };
  const fleet = stack.use(new RunnerFleet(parts));
  stack.use(base.hints.on('runners', () => fleet.wake()));
  return fleet;
}

function openCaptureStorage(
  { db, ownership: leadership, runners, limits, clock, log }: FleetSettings,
  runner: OwnedRunner,
): CaptureStorage {
  const { captures, images } = runner.client;
  const { reconcileIntervalMs: intervalMs } = limits;
  const storage = new CaptureStorage({
    runnerId: runner.id,
    captures,
    images,
    isConnected: () => runner.isConnected,
    storesImages: () => runner.fetchesImages,
    listImages: () => runner.images.digests,
    isRemoving: () => leadership.isLeading && runner === chooseRemover(runners),
    store: new CaptureObjectStore(db),
    pulledImages: new PulledImageStore(db),
    clock,
    intervalMs,
    log,
  });
  storage.start();
  return storage;
}

/** Returns the runner through which a leading control removes objects: only one, and one that knows all kinds of them if there is any. */
function chooseRemover(runners: FleetSettings['runners']): OwnedRunner | undefined {
  const connected = runners.listConnected();
  return connected.find((runner) => runner.fetchesImages) ?? connected[0];
}
