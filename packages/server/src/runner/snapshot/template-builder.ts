/**
 * Makes one template at a time:
 *
 *   boot (RAM = file) until the timer is right → agent mounts image and scratch disk → rehearsal of a create → host
 *   disconnects → stop → device state → QEMU ends → files are frozen and synced
 *
 * Until the host disconnects a build can be ended; what is left after that takes less than a second.
 */
import { mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { untilAborted } from '../../lib/deadline.ts';
import { syncLater } from '../../lib/durable-file.ts';
import { rehearse, TEMPLATE_GENERATION } from '../agent-client/rehearse.ts';
import type { Enclosure } from '../confinement/cgroup-tree.ts';
import { freezeFile, makeOverlay } from '../disk/overlay-file.ts';
import { makeScratchBase } from '../disk/scratch-base.ts';
import type { StoredImage } from '../image/image-store.types.ts';
import type { Machine } from '../machine/machine-store.ts';
import { addressesOf, type VmNetwork, type VmSlot } from '../network/vm-network.ts';
import { overlayName, type TemplateShape } from '../vmm/qemu-arguments.ts';
import type { VmLaunch, Vmm } from '../vmm/vmm.ts';
import { bootInTime } from './boot-in-time.ts';
import { DEVICES_NAME, takeDeviceState } from './device-state.ts';

/** Of a template, in its directory, besides the state of the devices. */
export const TEMPLATE_FILES = { ram: 'ram', base: 'base.ext4', scratch: 'scratch.qcow2' } as const;

export interface TemplateBuilderOptions {
  socketDirectory: string;
  vmm: Vmm;
  /** What new templates are made with. */
  machine: Machine;
  /** The mke2fs program. */
  mke2fs: string;
  /** Uid of the VM that becomes a template. */
  uid: number;
  /** Control groups for the VM that boots. */
  enclose: (id: string, shape: TemplateShape) => Promise<Enclosure>;
  network: VmNetwork;
  log: Logger;
}

export interface TemplateJob {
  key: string;
  image: StoredImage;
  shape: TemplateShape;
  /** Empty; filled with the files of the template. */
  directory: string;
  /** Aborted when nobody waits for the template any more. */
  signal: AbortSignal;
}

export class TemplateBuilder {
  readonly #options: TemplateBuilderOptions;

  constructor(options: TemplateBuilderOptions) {
    this.#options = options;
    mkdirSync(options.socketDirectory, { recursive: true, mode: 0o711 });
  }

  async build(job: TemplateJob): Promise<void> {
    const { key, shape } = job;
    const { network, enclose, socketDirectory } = this.#options;
    await using undo = new AsyncDisposableStack();
    const sockets = join(socketDirectory, key.slice(0, 12));
    undo.defer(() => rmSync(sockets, { recursive: true, force: true }));
    const slot = await network.acquire(`template-${key}`);
    undo.defer(() => network.release(`template-${key}`));
    const enclosure = await enclose(`template-${key}`, shape);
    undo.defer(() => enclosure.release());
    const { cgroupProcs } = enclosure;
    await this.#bootAndSave(job, await this.#layOut(job, { sockets, slot, cgroupProcs }), slot);
    await this.#freeze(job.directory);
  }

  /** The disk, and what the VM is started with. */
  async #layOut(
    { image, shape, directory }: TemplateJob,
    parts: { sockets: string; slot: VmSlot; cgroupProcs: readonly string[] },
  ): Promise<VmLaunch> {
    const { machine, mke2fs, uid } = this.#options;
    const { sockets: socketDirectory, slot, cgroupProcs } = parts;
    const scratchBasePath = join(directory, TEMPLATE_FILES.base);
    await makeScratchBase(scratchBasePath, { diskMiB: shape.diskMiB, mke2fs });
    const overlayDirectory = join(directory, 'disk');
    mkdirSync(overlayDirectory, { mode: 0o711 });
    makeOverlay(join(overlayDirectory, overlayName(0)), { sizeMiB: shape.diskMiB, uid });
    const disks = { imagePath: image.path, scratchBasePath, overlayDirectory, overlays: [0] };
    const { openTap } = slot;
    return { id: 'template', machine, shape, uid, socketDirectory, disks, openTap, cgroupProcs };
  }

  async #bootAndSave(
    { image, directory, signal }: TemplateJob,
    launch: VmLaunch,
    slot: VmSlot,
  ): Promise<void> {
    const { vmm, log } = this.#options;
    const ramPath = join(directory, TEMPLATE_FILES.ram);
    const { vm, session } = await bootInTime({ vmm, launch, ramPath, signal, log });
    try {
      await untilAborted(signal, session.call('POST', '/prepare', {}));
      const network = addressesOf(slot);
      const rehearsal = { generation: TEMPLATE_GENERATION, image: image.config, network };
      await untilAborted(signal, rehearse(session, rehearsal));
      session.close();
      await vm.stop();
      await vm.saveDevices(DEVICES_NAME);
    } finally {
      await vm.kill();
    }
    takeDeviceState(launch.socketDirectory, directory);
  }

  async #freeze(directory: string): Promise<void> {
    const overlays = join(directory, 'disk');
    renameSync(join(overlays, overlayName(0)), join(directory, TEMPLATE_FILES.scratch));
    rmSync(overlays, { recursive: true });
    for (const name of [DEVICES_NAME, ...Object.values(TEMPLATE_FILES)]) {
      freezeFile(join(directory, name));
      await syncLater(join(directory, name));
    }
  }
}
