/** The steps of one create, in order, each with its undoing registered before it is done. */
import { chownSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { AppError, parseImageReference } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Accelerator, CreateVm, VmInfo } from '../../lib/runner-protocol.ts';
import { writeVmRecord, type VmRecord } from '../adopt/vm-record.ts';
import { buildResumeRequest } from '../agent-client/resume-request.ts';
import { copyOverlay, type ScratchStore } from '../disk/scratch-store.ts';
import type { ImageStore } from '../image/image-store.ts';
import type { StoredImage } from '../image/image-store.types.ts';
import type { GuestNetwork, NetworkSlot } from '../network/guest-network.ts';
import type { TemplateFiles, VmHandle, Vmm } from '../vmm/vmm.ts';
import type { TemplateStore } from '../snapshot/template-store.ts';
import { hostBootId } from '../vmm/host-process.ts';
import type { DiskFiles, TemplateShape } from '../vmm/qemu-arguments.ts';
import type { VmDriver } from './vm-driver.ts';

const FIRST_ANSWER_TIMEOUT_MS = 30_000;

export interface CreationParts {
  accelerator: Accelerator;
  images: ImageStore;
  templates: TemplateStore;
  scratch: ScratchStore;
  network: GuestNetwork;
  vmm: Vmm;
  /** One uid for each network slot from `first` on; before it, from `serviceFirst`, those of probe and template. */
  uids: { serviceFirst: number; first: number; last: number };
  /** On disk: records and scratch overlays. */
  vmsDirectory: string;
  /** Short path, in memory: QEMU's sockets. */
  socketsDirectory: string;
  log: Logger;
}

export class VmCreation {
  readonly info: VmInfo;
  readonly #parts: CreationParts;
  readonly #request: CreateVm;
  readonly #directory: string;
  readonly #sockets: string;
  #stepStarted = performance.now();

  constructor(id: string, request: CreateVm, parts: CreationParts) {
    this.#parts = parts;
    this.#request = request;
    this.#directory = join(parts.vmsDirectory, id);
    this.#sockets = join(parts.socketsDirectory, id);
    const { image, vcpus, mem_mib, disk_mib } = request;
    this.info = { id, state: 'creating', image, vcpus, mem_mib, disk_mib, timings_ms: {} };
  }

  /** Before anything is made: a bad reference or an absent image leaves nothing to undo. */
  async resolveImage(): Promise<StoredImage> {
    const image = await this.#parts.images.prepare(parseImageReference(this.#request.image), {});
    this.info.image = image.reference;
    this.#endStep('image');
    return image;
  }

  async run(driver: VmDriver, image: StoredImage): Promise<void> {
    const { templates, scratch, network } = this.#parts;
    const template = await templates.ensure(image, this.#shape());
    this.#endStep('template');
    const base = await scratch.ensureBase(this.#request.disk_mib);
    driver.assertCreating();
    const slot = await network.acquire(this.info.id);
    this.registerRelease(driver, slot.index);
    const record = this.#newRecord(slot, template.key, image.digest);
    mkdirSync(this.#directory, { mode: 0o711 });
    writeVmRecord(this.#directory, record);
    this.#endStep('network');
    const scratchPath = join(this.#directory, 'scratch.qcow2');
    copyOverlay(template.files.scratchPath, scratchPath, record.uid);
    mkdirSync(this.#sockets, { mode: 0o700 });
    chownSync(this.#sockets, record.uid, record.uid);
    this.#endStep('disk');
    driver.assertCreating();
    const disks = { imagePath: image.path, scratchBasePath: base.basePath, scratchPath };
    const vm = await this.#restore(slot, record.uid, disks, template.files);
    driver.attach(vm);
    writeVmRecord(this.#directory, { ...record, process: vm.identity });
    await this.#wake(driver, vm, slot, image);
    driver.markRunning();
    writeVmRecord(this.#directory, {
      ...record,
      info: this.info,
      process: vm.identity,
      generation: driver.generation,
    });
  }

  /** What a VM holds besides its process, for a create and for an adoption alike. */
  registerRelease(driver: VmDriver, slot: number): void {
    const { network } = this.#parts;
    driver.onRelease(() => rmSync(this.#directory, { recursive: true, force: true }));
    driver.onRelease(() => network.release(this.info.id));
    driver.onRelease(() => rmSync(this.#sockets, { recursive: true, force: true }));
    this.#parts.log.debug({ vm: this.info.id, slot }, 'resources registered');
  }

  #shape(): TemplateShape {
    const { vcpus, mem_mib: memMiB, disk_mib: diskMiB } = this.#request;
    return { accelerator: this.#parts.accelerator, vcpus, memMiB, diskMiB };
  }

  #newRecord(slot: NetworkSlot, template: string, imageDigest: string): VmRecord {
    const uid = this.#parts.uids.first + slot.index;
    if (uid > this.#parts.uids.last)
      throw new AppError('capacity', 'this machine runs as many sandboxes as it has user ids for');
    return {
      version: 1,
      info: this.info,
      image_digest: imageDigest,
      template,
      slot: slot.index,
      uid,
      host_boot_id: hostBootId(),
      process: null,
      generation: 0,
    };
  }

  async #restore(slot: NetworkSlot, uid: number, disks: DiskFiles, files: TemplateFiles): Promise<VmHandle> {
    const openTap = () => slot.openTap();
    const vm = await this.#parts.vmm.restore(
      { id: this.info.id, shape: this.#shape(), uid, socketDirectory: this.#sockets, disks, openTap },
      files,
    );
    this.#endStep('restore');
    return vm;
  }

  async #wake(driver: VmDriver, vm: VmHandle, slot: NetworkSlot, image: StoredImage): Promise<void> {
    await vm.continue();
    this.#endStep('continue');
    const session = await driver.session(FIRST_ANSWER_TIMEOUT_MS);
    this.#endStep('agent');
    const { address, gateway, resolver, mtu } = slot;
    const network = { address, gateway, resolver, mtu };
    await session.call(
      'POST',
      '/resume',
      buildResumeRequest({
        vmId: this.info.id,
        generation: driver.generation,
        image: image.config,
        network,
      }),
    );
    this.#endStep('resume');
  }

  #endStep(step: string): void {
    const now = performance.now();
    this.info.timings_ms[step] = Math.round((now - this.#stepStarted) * 10) / 10;
    this.#stepStarted = now;
  }
}
