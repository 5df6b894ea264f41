/**
 * Templates: a VM booted once for each (image, shape, kernel, agent, QEMU), saved when its agent is up and no
 * user code has run. Every sandbox is a copy-on-write view of one.
 *
 *   boot (RAM = file) until the timer is right → agent mounts image and scratch disk → rehearsal of a create → host disconnects → stop → device state → QEMU ends
 *
 * From then on the RAM file must never change: a private mapping shows later writes to pages not yet copied.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { syncLater } from '../../lib/durable-file.ts';
import { SingleFlight } from '../../lib/single-flight.ts';
import { rehearse, TEMPLATE_GENERATION } from '../agent-client/rehearse.ts';
import type { Enclosure } from '../confinement/cgroup-tree.ts';
import { copyOverlay, freezeFile, type ScratchStore } from '../disk/scratch-store.ts';
import type { StoredImage } from '../image/image-store.types.ts';
import type { Machine } from '../machine/machine-store.ts';
import { addressesOf, type VmNetwork, type VmSlot } from '../network/vm-network.ts';
import {
  GUEST_MAC,
  kernelCommandLine,
  MACHINE_VERSION,
  overlayName,
  type TemplateShape,
} from '../vmm/qemu-arguments.ts';
import type { SavedState, Vmm } from '../vmm/vmm.ts';
import { bootInTime } from './boot-in-time.ts';
import { DEVICES_NAME, takeDeviceState } from './device-state.ts';
import { TemplateCatalogue } from './template-catalogue.ts';

/** What a template holds besides memory: device state and the written part of the disk. */
const BOOT_DISK_MIB = 64;

export interface TemplateFiles extends SavedState {
  /** qcow2 to copy for each VM, over the base of its size. */
  scratchPath: string;
}

export interface Bindings {
  versions: Readonly<Record<string, string>>;
  host: Readonly<Record<string, string>>;
}

export interface TemplateStoreOptions {
  directory: string;
  socketDirectory: string;
  vmm: Vmm;
  /** What new templates are made with. */
  machine: Machine;
  scratch: ScratchStore;
  /** Uid of the VM that becomes a template; one is made at a time. */
  uid: number;
  /** What saved state is bound to besides the image; `host` may come to be the same again, the versions not. */
  bindings: Bindings;
  /** Told of each template that was added to those on disk. */
  onStored?: () => void;
  /** Control groups for the VM that boots. */
  enclose: (id: string, shape: TemplateShape) => Promise<Enclosure>;
  network: VmNetwork;
  /** Runs a boot when it is its turn and there is room for what it writes. */
  inTurn: <T>(diskMiB: number, boot: () => Promise<T>) => Promise<T>;
  log: Logger;
}

export class TemplateStore {
  readonly #options: TemplateStoreOptions;
  readonly #flights = new SingleFlight<TemplateFiles>();
  readonly catalogue: TemplateCatalogue;
  #queue: Promise<unknown> = Promise.resolve();

  private constructor(options: TemplateStoreOptions) {
    this.#options = options;
    const madeWith = hash({ machine: MACHINE_VERSION, mac: GUEST_MAC, ...options.bindings.versions });
    this.catalogue = TemplateCatalogue.open(options.directory, madeWith);
  }

  /** Takes away what an interrupted build left. */
  static open(options: TemplateStoreOptions): TemplateStore {
    for (const parent of [options.directory, options.socketDirectory])
      mkdirSync(parent, { recursive: true, mode: 0o711 });
    return new TemplateStore(options);
  }

  /** What all templates that serve a create were made with. */
  get machine(): Machine {
    return this.#options.machine;
  }

  /** Name of the template's directory. An image that was made again has other bytes than the one the guest has read. */
  keyOf(image: StoredImage, shape: TemplateShape): string {
    const bound = {
      machine: MACHINE_VERSION,
      image: image.digest,
      imagePreparedAt: image.preparedAt.toISOString(),
      shape,
      mac: this.#options.network.absence === undefined ? GUEST_MAC : null,
      commandLine: kernelCommandLine(shape.accelerator),
      ...this.#options.bindings.versions,
      ...this.#options.bindings.host,
    };
    return hash(bound);
  }

  filesOf(key: string): TemplateFiles {
    const directory = join(this.#options.directory, key);
    return {
      ramPath: join(directory, 'ram'),
      statePath: join(directory, DEVICES_NAME),
      wasBusy: false,
      scratchPath: join(directory, 'scratch.qcow2'),
    };
  }

  /** The caller holds a lease of the template from before. */
  async ensure(image: StoredImage, shape: TemplateShape): Promise<void> {
    const key = this.keyOf(image, shape);
    if (this.catalogue.has(key)) return this.catalogue.markUse(key);
    const diskMiB = shape.memMiB + BOOT_DISK_MIB;
    const { inTurn } = this.#options;
    const build = () => inTurn(diskMiB, () => this.#build(key, image, shape));
    await this.#flights.run(key, () => this.#enqueue(build));
  }

  #enqueue<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#queue.then(work);
    this.#queue = run.catch(() => undefined);
    return run;
  }

  async #build(key: string, image: StoredImage, shape: TemplateShape): Promise<TemplateFiles> {
    const files = this.filesOf(key);
    if (this.catalogue.has(key)) return files;
    const started = performance.now();
    const building = join(this.#options.directory, `${key}.building`);
    const sockets = join(this.#options.socketDirectory, key.slice(0, 12));
    await using undo = new AsyncDisposableStack();
    undo.defer(() => rmSync(building, { recursive: true, force: true }));
    undo.defer(() => rmSync(sockets, { recursive: true, force: true }));
    rmSync(building, { recursive: true, force: true });
    mkdirSync(building, { mode: 0o711 });
    const { network } = this.#options;
    const slot = await network.acquire(`template-${key}`);
    undo.defer(() => network.release(`template-${key}`));
    const enclosure = await this.#options.enclose(`template-${key}`, shape);
    undo.defer(() => enclosure.release());
    const { cgroupProcs } = enclosure;
    await this.#bootAndSave({ building, sockets, image, shape, slot, cgroupProcs });
    const target = join(this.#options.directory, key);
    // What is there cannot be used, or it would have been.
    rmSync(target, { recursive: true, force: true });
    renameSync(building, target);
    await syncLater(this.#options.directory);
    this.catalogue.add(key);
    this.#options.onStored?.();
    const elapsedMs = Math.round(performance.now() - started);
    this.#options.log.info(
      { template: key, image: image.reference, shape, elapsed_ms: elapsedMs },
      'template made',
    );
    return files;
  }

  async #bootAndSave(build: {
    building: string;
    sockets: string;
    image: StoredImage;
    shape: TemplateShape;
    slot: VmSlot;
    cgroupProcs: readonly string[];
  }): Promise<void> {
    const { building, sockets, image, shape, slot, cgroupProcs } = build;
    const { scratch, uid, vmm, machine, log } = this.#options;
    const base = await scratch.ensureBase(shape.diskMiB);
    const overlayDirectory = join(building, 'disk');
    mkdirSync(overlayDirectory, { mode: 0o711 });
    const overlayPath = join(overlayDirectory, overlayName(0));
    copyOverlay(base.overlayPath, overlayPath, uid);
    const ramPath = join(building, 'ram');
    const disks = {
      imagePath: image.path,
      scratchBasePath: base.basePath,
      overlayDirectory,
      overlays: [0],
    };
    const { openTap } = slot;
    const launch = {
      id: 'template',
      machine,
      shape,
      uid,
      socketDirectory: sockets,
      disks,
      openTap,
      cgroupProcs,
    };
    const { vm, session } = await bootInTime({ vmm, launch, ramPath, log });
    try {
      await session.call('POST', '/prepare', {});
      const network = addressesOf(slot);
      await rehearse(session, { generation: TEMPLATE_GENERATION, image: image.config, network });
      session.close();
      await vm.stop();
      await vm.saveDevices(DEVICES_NAME);
    } finally {
      await vm.kill();
    }
    takeDeviceState(sockets, building);
    renameSync(overlayPath, join(building, 'scratch.qcow2'));
    rmSync(overlayDirectory, { recursive: true });
    for (const name of [DEVICES_NAME, 'scratch.qcow2', 'ram']) await freezeDurably(join(building, name));
    this.catalogue.writeRecord(building, { imageDigest: image.digest, imagePreparedAt: image.preparedAt });
    await syncLater(building);
  }
}

function hash(bound: Readonly<Record<string, unknown>>): string {
  return createHash('sha256').update(JSON.stringify(bound)).digest('hex').slice(0, 32);
}

async function freezeDurably(path: string): Promise<void> {
  freezeFile(path);
  await syncLater(path);
}
