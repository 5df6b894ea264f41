/** Opens what makes copies of VMs, and keeps them and their disks in the object store. */
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { CacheLeases } from './cache/cache-leases.ts';
import type { DiskGuard } from './capacity/disk-guard.ts';
import { CaptureEvictor } from './capture-objects/capture-evictor.ts';
import { CaptureObjects } from './capture-objects/capture-objects.ts';
import { assertUsable, type CaptureBindings } from './driver/capture-bindings.ts';
import type { Fleet } from './driver/fleet.ts';
import { VmCopies } from './driver/vm-copies.ts';
import { VmRollbacks } from './driver/vm-rollbacks.ts';
import type { ImageStore } from './image/store/image-store.ts';
import type { VmNetwork } from './network/vm-network.ts';
import type { OpenedDisks } from './open-disks.ts';
import type { RunnerConfig } from './runner-config.ts';
import type { CaptureStore } from './snapshot/capture-store.ts';
import { DiskOperations } from './workspace/disk-operations.ts';

/** Directory in that of the overlays, because the block server opens files only there. */
const IMAGES_IN_THE_MAKING = 'new';

export interface OpenedCopies extends AsyncDisposable {
  copies: VmCopies;
  objects: CaptureObjects;
  rollbacks: VmRollbacks;
  disks: DiskOperations;
  /** Makes room on the disk for that much, or throws `capacity`. */
  makeRoom: (neededMiB: number) => Promise<void>;
}

interface CopiesParts {
  fleet: Fleet;
  captures: CaptureStore;
  images: ImageStore;
  leases: CacheLeases;
  network: VmNetwork;
  persistent: OpenedDisks;
  disk: DiskGuard;
  log: Logger;
}

export function openCopies(
  config: RunnerConfig,
  { machines, accelerators, tscKhz }: Pick<CaptureBindings, 'machines' | 'accelerators' | 'tscKhz'>,
  parts: CopiesParts,
): OpenedCopies {
  const { fleet, captures, network, persistent, disk, log } = parts;
  const { tools } = config;
  const bindings = { machines, accelerators, hasNetwork: network.absence === undefined, tscKhz };
  const disks = buildDiskOperations(persistent, { mke2fs: tools.mke2fs, disk, fleet });
  const { objects, evictor } = openObjects(config, bindings, { ...parts, disks });
  return {
    disks,
    objects,
    copies: new VmCopies({ fleet, captures, objects, bindings, disk, program: tools.capture, log }),
    rollbacks: new VmRollbacks({ fleet, objects, bindings }),
    makeRoom: (neededMiB) => evictor.makeRoom(neededMiB),
    [Symbol.asyncDispose]: async () => {
      evictor[Symbol.dispose]();
      await objects[Symbol.asyncDispose]();
    },
  };
}

function openObjects(
  { objectStore }: RunnerConfig,
  bindings: CaptureBindings,
  { captures, images, leases, persistent, disk, disks, log }: CopiesParts & { disks: DiskOperations },
): { objects: CaptureObjects; evictor: CaptureEvictor } {
  const objects: CaptureObjects = new CaptureObjects({
    captures,
    server: persistent.server,
    isShared: objectStore !== 'directory',
    disks,
    images: images.stored,
    leases,
    makeRoom: (neededMiB) => evictor.makeRoom(neededMiB),
    assertUsable: (manifest) => assertUsable(bindings, manifest),
    log,
  });
  const drop = (id: string, organization: string): Promise<void> => objects.drop(id, organization);
  const evictor = new CaptureEvictor({ captures, disk, drop, log });
  return { objects, evictor };
}

function buildDiskOperations(
  { server, workspaces, directory }: OpenedDisks,
  { mke2fs, disk, fleet }: { mke2fs: string; disk: DiskGuard; fleet: Fleet },
): DiskOperations {
  return new DiskOperations({
    server,
    workspaces,
    directory: join(directory, IMAGES_IN_THE_MAKING),
    name: IMAGES_IN_THE_MAKING,
    mke2fs,
    disk,
    sessionOf: (vmId) => fleet.vms.getRunning(vmId).session(),
  });
}
