/**
 * From a template to a sandbox's VM, in two parts. All that does not depend on whose VM it will be comes first, so
 * that it can be done before anybody asks (warm-pool.ts):
 *
 *   assemble   slot → record → disk → QEMU with the template's state → continue → the agent answers
 *   wake       `resume` with the sandbox's identity → running → record of the sandbox
 *
 * Each step registers its undoing before it is done. Files and sockets go by the VM's unit name, not by the
 * sandbox's id, which is not known yet.
 */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { writeVmRecord, type VmRecord } from '../adopt/vm-record.ts';
import { rehearse } from '../agent-client/rehearse.ts';
import { buildResumeRequest } from '../agent-client/resume-request.ts';
import type { CgroupTree } from '../confinement/cgroup-tree.ts';
import { buildUnitLimits } from '../confinement/unit-limits.ts';
import { isTmpfs } from '../disk/tmpfs.ts';
import { copyOverlay, type ScratchStore } from '../disk/scratch-store.ts';
import type { StoredImage } from '../image/image-store.types.ts';
import type { Machine } from '../machine/machine-store.ts';
import { addressesOf, type VmNetwork, type VmSlot } from '../network/vm-network.ts';
import { hostBootId } from '../vmm/host-process.ts';
import type { TemplateShape } from '../vmm/qemu-arguments.ts';
import { giveTo, type VmAccounts } from '../vmm/vm-accounts.ts';
import type { TemplateFiles, VmHandle, Vmm } from '../vmm/vmm.ts';
import type { StepTimer } from './step-timer.ts';
import { enterStep } from './steps.ts';
import type { VmDriver } from './vm-driver.ts';

const FIRST_ANSWER_TIMEOUT_MS = 30_000;

export interface AssemblyParts {
  scratch: ScratchStore;
  network: VmNetwork;
  vmm: Vmm;
  cgroups: CgroupTree;
  accounts: VmAccounts;
  /** On disk: records and scratch overlays. */
  vmsDirectory: string;
  /** Short path, in memory: QEMU's sockets. */
  socketsDirectory: string;
}

/** What a VM is made from. */
export interface Blueprint {
  /** That of the files' state. */
  machine: Machine;
  image: StoredImage;
  shape: TemplateShape;
  templateKey: string;
  files: TemplateFiles;
}

/** A VM that answers and belongs to nobody yet. */
export interface AssembledVm {
  driver: VmDriver;
  blueprint: Blueprint;
  slot: VmSlot;
  record: VmRecord;
}

export class VmAssembler {
  readonly #parts: AssemblyParts;

  constructor(parts: AssemblyParts) {
    this.#parts = parts;
  }

  async assemble(driver: VmDriver, blueprint: Blueprint, timer: StepTimer): Promise<AssembledVm> {
    const { scratch, network } = this.#parts;
    const base = await scratch.ensureBase(blueprint.shape.diskMiB);
    driver.assertCreating();
    this.registerRelease(driver, this.#parts.cgroups.directoriesOf(driver.unit));
    await enterStep('create.slot');
    const slot = await network.acquire(driver.unit);
    await enterStep('create.record');
    const record = this.#newRecord(driver, slot, blueprint);
    const directory = this.directoryOf(driver.unit);
    mkdirSync(directory, { mode: 0o711 });
    writeVmRecord(directory, record);
    timer.end('network');
    await enterStep('create.disk');
    const scratchPath = this.scratchPathOf(driver.unit);
    copyOverlay(blueprint.files.scratchPath, scratchPath, record.uid);
    const sockets = this.socketsOf(driver.unit);
    mkdirSync(sockets, { mode: 0o700 });
    giveTo(sockets, record.uid);
    timer.end('disk');
    await enterStep('create.launch');
    const disks = { imagePath: blueprint.image.path, scratchBasePath: base.basePath, scratchPath };
    const cgroupProcs = await this.#enclose(driver, blueprint.shape);
    timer.end('cgroup');
    driver.assertCreating();
    const launch = {
      id: driver.unit,
      machine: blueprint.machine,
      shape: blueprint.shape,
      uid: record.uid,
      socketDirectory: sockets,
      disks,
      openTap: slot.openTap,
      cgroupProcs,
    };
    const vm = await this.#parts.vmm.restore(launch, blueprint.files);
    driver.attach(vm);
    await enterStep('create.note');
    record.process = vm.identity;
    writeVmRecord(directory, record);
    timer.end('restore');
    await this.#start(driver, vm, timer);
    return { driver, blueprint, slot, record };
  }

  #enclose({ unit }: VmDriver, shape: TemplateShape): Promise<string[]> {
    const tmpfsMiB = isTmpfs(this.#parts.vmsDirectory) ? shape.diskMiB : 0;
    return this.#parts.cgroups.create(unit, buildUnitLimits({ shape, tmpfsMiB }));
  }

  async #start(driver: VmDriver, vm: VmHandle, timer: StepTimer): Promise<void> {
    await enterStep('create.continue');
    await vm.continue();
    await enterStep('create.agent');
    await driver.session(FIRST_ANSWER_TIMEOUT_MS);
    timer.end('agent');
  }

  /** Gives an assembled VM to the sandbox that its driver now names. */
  async wake(assembled: AssembledVm, timer: StepTimer): Promise<void> {
    const { driver, record } = assembled;
    const session = await driver.session(FIRST_ANSWER_TIMEOUT_MS);
    const { image } = assembled.blueprint;
    const vmId = driver.info.id;
    const generation = driver.nextResume();
    const network = addressesOf(assembled.slot);
    const request = buildResumeRequest({ vmId, generation, image: image.config, network });
    await enterStep('create.resume');
    await session.call('POST', '/resume', request);
    timer.end('resume');
    await enterStep('create.running');
    driver.markRunning();
    const { info, generation: lastSession } = driver;
    writeVmRecord(this.directoryOf(driver.unit), { ...record, info, generation: lastSession });
  }

  /** Makes a VM of the pool as quick as one that has served before. */
  async rehearse({ driver, blueprint, slot }: AssembledVm): Promise<void> {
    const session = await driver.session(FIRST_ANSWER_TIMEOUT_MS);
    await rehearse(session, {
      generation: driver.nextResume(),
      image: blueprint.image.config,
      network: addressesOf(slot),
    });
  }

  /** What a VM holds besides its process, for one that is made and one that is adopted alike. */
  registerRelease(driver: VmDriver, cgroupDirectories: readonly string[]): void {
    const { network, cgroups } = this.#parts;
    driver.onRelease(() => cgroups.remove(cgroupDirectories));
    driver.onRelease(() => rmSync(this.directoryOf(driver.unit), { recursive: true, force: true }));
    driver.onRelease(() => network.release(driver.unit));
    driver.onRelease(() => rmSync(this.socketsOf(driver.unit), { recursive: true, force: true }));
  }

  directoryOf(unit: string): string {
    return join(this.#parts.vmsDirectory, unit);
  }

  /** The VM's own part of its disk. */
  scratchPathOf(unit: string): string {
    return join(this.directoryOf(unit), 'scratch.qcow2');
  }

  socketsOf(unit: string): string {
    return join(this.#parts.socketsDirectory, unit);
  }

  #newRecord(driver: VmDriver, slot: VmSlot, blueprint: Blueprint): VmRecord {
    return {
      version: 1,
      info: driver.info,
      image_digest: blueprint.image.digest,
      template: blueprint.templateKey,
      slot: slot.index,
      uid: this.#parts.accounts.ofSlot(slot.index),
      cgroups: this.#parts.cgroups.directoriesOf(driver.unit),
      host_boot_id: hostBootId(),
      process: null,
      generation: 0,
    };
  }
}
