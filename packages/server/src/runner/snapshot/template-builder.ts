/**
 * Builds one template at a time, in two parts:
 *
 *   once for each shape   boot (RAM = file), disks empty, until the timer is right ────────────────┐
 *   for each template     continue from a copy of that, with its disks → agent mounts them         ├─ host disconnects
 *                         → rehearsal of a create ─────────────────────────────────────────────────┘
 *   both                  → stop → device state → the VM ends → files are frozen and synced
 *
 * A build can be aborted until the host disconnects; the rest takes less than a second.
 */
import { chmodSync, mkdirSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { untilAborted } from '../../lib/waiting/deadline.ts';
import { syncLater } from '../../lib/files/durable-file.ts';
import type { AgentSession } from '../agent-client/agent-session.ts';
import { tellTime } from '../agent-client/guest-clock.ts';
import { rehearse, TEMPLATE_GENERATION } from '../agent-client/rehearse.ts';
import type { Enclosure } from '../confinement/cgroup-tree.ts';
import { makeOverlay } from '../disk/overlay-file.ts';
import { makeScratchBase } from '../disk/scratch-base.ts';
import { freezeFile } from '../disk/vm-directory.ts';
import type { StoredImage } from '../image/store/image-store.types.ts';
import { addressesOf, type VmNetwork, type VmSlot } from '../network/vm-network.ts';
import { DEVICES_NAME, overlayName } from '../vm/vm-files.ts';
import { type TemplateShape } from '../vm/shape.ts';
import type { SavedState, VmHandle, VmLaunch, Vmm } from '../vm/vmm.ts';
import { bootInTime, goOnFrom } from './boot-in-time.ts';

/** Files in a template's directory, in addition to the device state. */
export const TEMPLATE_FILES = { ram: 'ram', base: 'base.ext4', scratch: 'scratch.qcow2' } as const;

/** Size of the empty disks that stand in for image and scratch disk of a booting guest. */
const EMPTY_DISK_MIB = 1;
const MIB = 1024 * 1024;

export interface TemplateBuilderOptions {
  socketDirectory: string;
  vmm: Vmm;
  /** Key of the machine of new templates. */
  machine: string;
  /** The mke2fs program. */
  mke2fs: string;
  /** Uid of the VM that becomes a template. */
  uid: number;
  /** Holds the block server's socket. */
  blocksDirectory: string;
  /** Creates the control groups of the booting VM. */
  enclose: (id: string, shape: TemplateShape) => Promise<Enclosure>;
  network: VmNetwork;
  log: Logger;
}

export interface BootJob {
  /** Key of the template or booted guest. */
  key: string;
  shape: TemplateShape;
  /** An empty directory, filled with the files. */
  directory: string;
  /** Aborted when no caller waits for it any more. */
  signal: AbortSignal;
}

export interface TemplateJob extends BootJob {
  image: StoredImage;
  /** The state that {@link TemplateBuilder.boot} saved for this shape. */
  booted: SavedState;
}

interface Disk {
  imagePath: string;
  scratchBasePath: string;
  sizeMiB: number;
}

export class TemplateBuilder {
  readonly #options: TemplateBuilderOptions;

  constructor(options: TemplateBuilderOptions) {
    this.#options = options;
    mkdirSync(options.socketDirectory, { recursive: true, mode: 0o711 });
  }

  /** Saves a booted guest: its memory and device state. Its agent is up and has mounted nothing. */
  async boot(job: BootJob): Promise<void> {
    const { vmm, log } = this.#options;
    const { directory, signal } = job;
    const emptyPath = join(directory, 'empty');
    makeEmptyDisk(emptyPath);
    const disk = { imagePath: emptyPath, scratchBasePath: emptyPath, sizeMiB: EMPTY_DISK_MIB };
    const ramPath = join(directory, TEMPLATE_FILES.ram);
    await this.#inEnclosure(job, disk, async (launch) => {
      const { vm, session } = await bootInTime({ vmm, launch, ramPath, signal, log });
      await this.#save({ vm, session }, directory);
    });
    rmSync(overlaysIn(directory), { recursive: true });
    rmSync(emptyPath);
    await freeze(directory, [DEVICES_NAME, TEMPLATE_FILES.ram]);
  }

  /** Builds a template. Throws BootedGuestError if the booted guest's saved state cannot be used. */
  async build(job: TemplateJob): Promise<{ isInTime: boolean }> {
    const { vmm, mke2fs } = this.#options;
    const { image, shape, directory, signal, booted } = job;
    const scratchBasePath = join(directory, TEMPLATE_FILES.base);
    await makeScratchBase(scratchBasePath, { diskMiB: shape.diskMiB, mke2fs });
    const disk = { imagePath: image.path, scratchBasePath, sizeMiB: shape.diskMiB };
    const ramPath = join(directory, TEMPLATE_FILES.ram);
    let isInTime = false;
    await this.#inEnclosure(job, disk, async (launch, slot) => {
      const guest = await goOnFrom(booted, { vmm, launch, ramPath, signal });
      ({ isInTime } = guest);
      await this.#save(guest, directory, async (session) => {
        // The guest was saved a while ago.
        await untilAborted(signal, tellTime(session));
        await untilAborted(signal, session.call('POST', '/prepare', {}));
        const network = addressesOf(slot);
        const rehearsal = { generation: TEMPLATE_GENERATION, image: image.config, network };
        await untilAborted(signal, rehearse(session, rehearsal));
      });
    });
    const overlays = overlaysIn(directory);
    renameSync(join(overlays, overlayName(0)), join(directory, TEMPLATE_FILES.scratch));
    rmSync(overlays, { recursive: true });
    await freeze(directory, [DEVICES_NAME, ...Object.values(TEMPLATE_FILES)]);
    return { isInTime };
  }

  /** Runs `work` with everything that a VM needs on the host. */
  async #inEnclosure(
    { key, shape, directory }: BootJob,
    disk: Disk,
    work: (launch: VmLaunch, slot: VmSlot) => Promise<void>,
  ): Promise<void> {
    const { network, enclose, socketDirectory, blocksDirectory, machine, uid } = this.#options;
    await using undo = new AsyncDisposableStack();
    const sockets = join(socketDirectory, key.slice(0, 12));
    undo.defer(() => rmSync(sockets, { recursive: true, force: true }));
    const slot = await network.acquire(`template-${key}`);
    undo.defer(() => network.release(`template-${key}`));
    const enclosure = await enclose(`template-${key}`, shape);
    undo.defer(() => enclosure.release());
    const { imagePath, scratchBasePath, sizeMiB } = disk;
    const overlayDirectory = overlaysIn(directory);
    mkdirSync(overlayDirectory, { mode: 0o711 });
    makeOverlay(join(overlayDirectory, overlayName(0)), { sizeMiB, uid });
    const disks = { imagePath, scratchBasePath, overlayDirectory, overlays: [0] };
    // Stays empty: a template has no persistent disk.
    const workspaceDirectory = join(directory, 'workspace');
    mkdirSync(workspaceDirectory, { mode: 0o711 });
    undo.defer(() => rmSync(workspaceDirectory, { recursive: true, force: true }));
    const workspace = { overlayDirectory: workspaceDirectory, serverDirectory: blocksDirectory };
    const { cgroups } = enclosure;
    const { tap } = slot;
    const place = { socketDirectory: sockets, disks, workspace, tap, cgroups };
    await work({ id: 'template', machine, shape, uid, ...place }, slot);
  }

  /** Runs `finish`, saves the device state, and ends the VM in any case. */
  async #save(
    { vm, session }: { vm: VmHandle; session: AgentSession },
    directory: string,
    finish?: (session: AgentSession) => Promise<void>,
  ): Promise<void> {
    try {
      await finish?.(session);
      session.close();
      await vm.stop();
      await vm.saveState(join(directory, DEVICES_NAME));
    } finally {
      await vm.kill();
    }
  }
}

function overlaysIn(directory: string): string {
  return join(directory, 'disk');
}

function makeEmptyDisk(path: string): void {
  writeFileSync(path, '');
  truncateSync(path, EMPTY_DISK_MIB * MIB);
  chmodSync(path, 0o444);
}

async function freeze(directory: string, names: readonly string[]): Promise<void> {
  for (const name of names) {
    freezeFile(join(directory, name));
    await syncLater(join(directory, name));
  }
}
