/**
 * Makes a sandbox's VM from saved state (a template or a capture), in two parts. The first part does not depend on the
 * sandbox, so it can run before a caller requests one (warm-pool.ts):
 *
 *   assemble   slot → record → disk → VMM with the saved state → continue → the agent answers
 *   wake       `resume` with the sandbox's identity → running → record of the sandbox
 *
 * Each step registers its undo before it runs. The VM instance names files and sockets, as there is no sandbox id yet.
 */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { untilAborted, withDeadline } from '../../lib/waiting/deadline.ts';
import { hasNoRules } from '../../lib/protocol/egress-protocol.ts';
import { writeVmRecord, type GuestImage, type VmRecord } from '../vm/vm-record.ts';
import { compareClock, type GuestClock } from '../agent-client/guest-clock.ts';
import { rehearse } from '../agent-client/rehearse.ts';
import { buildResumeRequest } from '../agent-client/resume-request.ts';
import type { CgroupTree } from '../confinement/cgroup-tree.ts';
import { buildUnitLimits } from '../confinement/unit-limits.ts';
import { isTmpfs } from '../host/tmpfs.ts';
import { OverlayChain } from '../disk/overlay-chain.ts';
import { largestDiskMiB, templateDiskMiB } from '../disk/disk-sizes.ts';
import { VmDirectory } from '../disk/vm-directory.ts';
import type { StoredImage } from '../image/store/image-store.types.ts';
import { addressesOf, type VmNetwork, type VmSlot } from '../network/vm-network.ts';
import { hostBootId } from '../host/host-process.ts';
import type { TemplateShape } from '../vm/shape.ts';
import { giveTo } from '../host/file-owner.ts';
import { type VmAccounts } from '../confinement/vm-accounts.ts';
import type { SavedState, VmHandle, Vmm } from '../vm/vmm.ts';
import type { WorkspaceDevice, WorkspaceDirectories, WorkspaceSource } from '../vm/workspace-device.ts';
import type { Attachment } from '../workspace/attachment.ts';
import type { AttachedGuest } from '../workspace/attachment.types.ts';
import type { DiskForVm } from '../workspace/pending-disk.ts';
import { unmountWorkspace } from '../workspace/guest-workspace.ts';
import { OVERLAY_AFTER_LENT, type Workspaces } from '../workspace/workspaces.ts';
import type { StepTimer } from '../vm/step-timer.ts';
import { enterStep } from '../vm/steps.ts';
import { OPENING_TIMEOUT_MS, type VmDriver } from './vm-driver.ts';
import type { AgentCounters } from './vm-driver.types.ts';
import { buildPlaceholders, toEgressRecord } from './vm-egress.ts';

/** Added to the resume timeout per GiB of growth: ten times what an emulated guest needs with a core to itself. */
const GROW_TIMEOUT_MS_PER_GIB = 250;
/** The device of a guest that never had a disk. */
const NO_DISK = { top: undefined, versions: [] };
/** How long a sandbox without rules waits for the egress process. */
const UNRULED_TIMEOUT_MS = 500;

export interface AssemblyParts {
  network: VmNetwork;
  vmm: Vmm;
  cgroups: CgroupTree;
  accounts: VmAccounts;
  /** On disk. Holds records and scratch overlays. */
  vmsDirectory: string;
  /** The persistent disks of VMs, and the directories that every VM has for one. */
  workspaces: Workspaces;
  /** In memory, with a short path. Holds the VMM's sockets. */
  socketsDirectory: string;
  log: Logger;
}

/** The sources of a VM. */
export interface Blueprint {
  /** Key of the machine of the saved state. */
  machine: string;
  image: GuestImage;
  shape: TemplateShape;
  /** Size of the disk in the saved state if the VM gets a larger one; absent if it is the size of the shape. */
  savedDiskMiB?: number;
  /** Absent for a VM that continues from a capture. */
  templateKey?: string;
  files: SavedState & { imagePath: string; scratch: ScratchSource };
  counters: AgentCounters;
  /** Network slot of the saved guest, to be avoided: the new VM needs another address. */
  avoidSlot?: number;
}

/** A blueprint whose template exists or will be built. */
export interface TemplateBlueprint extends Blueprint {
  templateKey: string;
  savedDiskMiB: number;
  stored: StoredImage;
}

/** The files under the VM's own overlay, which is a copy of `topPath`, or empty without one. */
interface ScratchSource {
  basePath: string;
  frozen: readonly string[];
  topPath?: string;
}

/** A VM whose agent answers, not yet given to a sandbox. */
export interface AssembledVm {
  driver: VmDriver;
  blueprint: Blueprint;
  slot: VmSlot;
  record: VmRecord;
  vm: VmHandle;
  chain: OverlayChain;
  clock: GuestClock;
}

/** How a VM is assembled and woken. */
export interface Assembling {
  timer: StepTimer;
  /** The sandbox's persistent disk; absent without one. */
  disk?: DiskForVm | undefined;
}

export class VmAssembler {
  readonly #parts: AssemblyParts;

  constructor(parts: AssemblyParts) {
    this.#parts = parts;
  }

  /** A disk is given to a VM that continues from a capture here, as its guest has it mounted; to another one in `wake`. */
  async assemble(driver: VmDriver, blueprint: Blueprint, { timer, disk }: Assembling): Promise<AssembledVm> {
    const { network } = this.#parts;
    driver.assertCreating();
    this.registerRelease(driver, this.#parts.cgroups.directoriesOf(driver.unit));
    await enterStep('create.slot');
    const slot = await network.acquire(driver.unit, blueprint.avoidSlot);
    await enterStep('create.record');
    const record = this.#newRecord(driver, slot, blueprint);
    const directory = this.directoryOf(driver.unit);
    mkdirSync(directory.path, { mode: 0o711 });
    writeVmRecord(directory.path, record);
    timer.end('network');
    await enterStep('create.disk');
    const { ramPath, imagePath, scratch } = blueprint.files;
    const { basePath: scratchBasePath, frozen, topPath } = scratch;
    const sizeMiB = blueprint.savedDiskMiB ?? blueprint.shape.diskMiB;
    const top = topPath === undefined ? { sizeMiB } : { path: topPath };
    const overlays = directory.take({ ramPath, imagePath, scratchBasePath, frozen, top }, record.uid);
    const sockets = this.#makeSockets(driver.unit, record.uid);
    const workspace = this.#parts.workspaces.makePlace(driver.unit);
    const mounted = disk?.isMounted === true ? await this.#bind(driver, record, disk) : undefined;
    const source = mounted?.source ?? (await disk?.left?.lend({ unit: driver.unit, uid: record.uid }));
    timer.end('disk');
    await enterStep('create.launch');
    const disks = {
      imagePath: directory.image,
      scratchBasePath: directory.scratchBase,
      overlayDirectory: directory.overlays,
      overlays,
    };
    const cgroups = await this.#enclose(driver, blueprint.shape);
    timer.end('cgroup');
    driver.assertCreating();
    // Saved programs run as soon as the guest does; a template has none.
    const lettingOut = blueprint.templateKey === undefined ? this.#letOut(driver) : undefined;
    // Awaited below, unless the start fails first.
    lettingOut?.catch(() => undefined);
    const launch = {
      id: driver.unit,
      machine: blueprint.machine,
      shape: blueprint.shape,
      uid: record.uid,
      socketDirectory: sockets,
      disks,
      workspace: source === undefined ? workspace : { ...workspace, source },
      tap: slot.tap,
      cgroups,
    };
    const vm = await this.#parts.vmm.restore(launch, blueprint.files);
    const { log } = this.#parts;
    const chain = new OverlayChain(overlays, { disk: vm.disk, directory, uid: record.uid, sizeMiB, log });
    driver.attach(vm, chain);
    mounted?.join(guestOf(driver, vm));
    await enterStep('create.note');
    record.process = vm.identity;
    writeVmRecord(directory.path, record);
    timer.end('restore');
    await lettingOut;
    timer.end('egress');
    const clock = await this.#start(driver, vm, timer);
    return { driver, blueprint, slot, record, vm, chain, clock };
  }

  /**
   * Puts the sandbox's rules in force. Only a sandbox without rules continues if that takes long. Its names are not
   * resolved until the egress process knows it; the next start of that process ensures this.
   */
  async #letOut(driver: VmDriver): Promise<void> {
    const { egress, info, unit } = driver;
    const setting = this.#parts.network.setEgress(unit, { vmId: info.id, egress });
    if (!hasNoRules(egress)) return setting;
    await withDeadline('setting the egress rules', UNRULED_TIMEOUT_MS, setting).catch((error: unknown) => {
      this.#parts.log.warn({ err: error, unit }, 'the egress process did not accept a sandbox in time');
    });
  }

  #enclose({ unit }: VmDriver, shape: TemplateShape): Promise<string[]> {
    // A warm VM may get a sandbox with a larger disk.
    const diskMiB = largestDiskMiB(templateDiskMiB(shape.diskMiB));
    const tmpfsMiB = isTmpfs(this.#parts.vmsDirectory) ? diskMiB : 0;
    return this.#parts.cgroups.create(unit, buildUnitLimits({ shape, tmpfsMiB }));
  }

  async #start(driver: VmDriver, vm: VmHandle, timer: StepTimer): Promise<GuestClock> {
    await enterStep('create.continue');
    await vm.continue();
    await enterStep('create.agent');
    const session = await driver.session(OPENING_TIMEOUT_MS);
    const clock = await compareClock(session);
    timer.end('agent');
    return clock;
  }

  /** Gives an assembled VM to the sandbox of its driver. */
  async wake(assembled: AssembledVm, { timer, disk }: Assembling): Promise<void> {
    const { driver, record } = assembled;
    const session = await driver.session(OPENING_TIMEOUT_MS);
    const { image } = assembled.blueprint;
    const vmId = driver.info.id;
    const generation = driver.nextResume();
    const network = addressesOf(assembled.slot);
    const lettingOut = assembled.blueprint.templateKey === undefined ? undefined : this.#letOut(driver);
    // A sandbox with rules runs nothing before they are in force; for the others this happens in parallel.
    if (!hasNoRules(driver.egress)) await lettingOut;
    const services = driver.egress.grants.map(({ service }) => service);
    const placeholders = buildPlaceholders(vmId, services);
    const diskMiB = await growDisk(assembled, timer);
    const workspaceBytes = disk?.isMounted === false ? await this.#attachDisk(assembled, disk) : undefined;
    timer.end('workspace');
    const kept = driver.workspace?.kept;
    // Saved programs continue at the end of the resume; a template has none.
    if (assembled.blueprint.templateKey === undefined) await kept;
    await enterStep('create.resume');
    const monotonicNs = assembled.clock.monotonicNs();
    const told = { vmId, generation, image: image.config, network, placeholders, monotonicNs };
    const request = { ...told, diskMiB, workspaceBytes };
    const timeoutMs = session.answerTimeoutMs + growTimeoutMs(assembled.blueprint);
    const resumed = session.call('POST', '/resume', buildResumeRequest(request), { timeoutMs });
    // A destroy does not wait until the disk has grown: it kills the VM.
    await untilAborted(driver.endAsked, resumed);
    await Promise.all([lettingOut, kept]);
    timer.end('resume');
    await enterStep('create.running');
    driver.markRunning();
    const { info, counters } = driver;
    driver.running.chain.flattenIfLong({ isNewCopy: true });
    const { session: lastSession, resume } = counters;
    const egress = toEgressRecord(driver.egress);
    const { shape } = assembled.blueprint;
    const written = { ...record, info, image, shape, egress, generation: lastSession, resume };
    writeVmRecord(this.directoryOf(driver.unit).path, written);
  }

  /** Gives the disk to a guest that has none mounted. Returns its size in bytes. */
  async #attachDisk({ driver, record, vm }: AssembledVm, disk: DiskForVm): Promise<number> {
    const { left } = disk;
    if (left !== undefined) await unmountWorkspace(await driver.session());
    const attachment = await this.#bind(driver, record, disk, left === undefined ? 0 : OVERLAY_AFTER_LENT);
    await enterStep('create.workspace');
    const { top, versions } = left === undefined ? NO_DISK : await vm.workspace.list();
    if (top === undefined) await vm.workspace.attach(attachment.source);
    else await exchange(vm.workspace, { top, versions, source: attachment.source });
    if (left !== undefined) this.#parts.workspaces.takeBack(driver.unit);
    attachment.join(guestOf(driver, vm));
    return attachment.record.size_bytes;
  }

  async #bind(driver: VmDriver, { uid }: VmRecord, disk: DiskForVm, firstOverlay = 0): Promise<Attachment> {
    const { attachment, mounted } = await disk.bind({ unit: driver.unit, uid, firstOverlay });
    driver.attachWorkspace(attachment);
    driver.info.workspace = mounted;
    return attachment;
  }

  /** Runs a resume and a command in a warm VM, so that it is as quick as a VM that has served before. */
  async rehearse({ driver, blueprint, slot }: AssembledVm): Promise<void> {
    const session = await driver.session(OPENING_TIMEOUT_MS);
    await rehearse(session, {
      generation: driver.nextResume(),
      image: blueprint.image.config,
      network: addressesOf(slot),
    });
  }

  /** Registers the release of everything that a VM holds besides its process, for new and adopted VMs. */
  registerRelease(driver: VmDriver, cgroupDirectories: readonly string[]): void {
    const { network, cgroups, workspaces } = this.#parts;
    driver.onRelease(() => cgroups.remove(cgroupDirectories));
    driver.onRelease(() => rmSync(this.directoryOf(driver.unit).path, { recursive: true, force: true }));
    driver.onRelease(() => network.release(driver.unit));
    // Before its user id is free for another VM. The data of a persistent disk outlives the VM.
    driver.onRelease(() => workspaces.leave(driver.unit));
    driver.onRelease(() => rmSync(this.socketsOf(driver.unit), { recursive: true, force: true }));
  }

  directoryOf(unit: string): VmDirectory {
    return new VmDirectory(join(this.#parts.vmsDirectory, unit));
  }

  /** Adopts the disk of a VM that an earlier process made. */
  async adoptDisk(unit: string, record: VmRecord, vm: VmHandle): Promise<OverlayChain> {
    const { log } = this.#parts;
    const { diskMiB: sizeMiB } = record.shape;
    return OverlayChain.adopt({
      disk: vm.disk,
      directory: this.directoryOf(unit),
      uid: record.uid,
      sizeMiB,
      log,
    });
  }

  /** Adopts the persistent disk of a VM that an earlier process made, if it has one. */
  async adoptWorkspace(driver: VmDriver, vm: VmHandle): Promise<void> {
    const attachment = await this.#parts.workspaces.adopt(driver.unit, guestOf(driver, vm));
    if (attachment !== undefined) driver.attachWorkspace(attachment);
  }

  workspaceOf(unit: string): WorkspaceDirectories {
    return this.#parts.workspaces.makePlace(unit);
  }

  #makeSockets(unit: string, uid: number): string {
    const path = this.socketsOf(unit);
    mkdirSync(path, { mode: 0o700 });
    giveTo(path, uid);
    return path;
  }

  socketsOf(unit: string): string {
    return join(this.#parts.socketsDirectory, unit);
  }

  #newRecord(driver: VmDriver, slot: VmSlot, blueprint: Blueprint): VmRecord {
    return {
      version: 2,
      info: driver.info,
      image: blueprint.image,
      shape: blueprint.shape,
      template: blueprint.templateKey ?? null,
      machine: blueprint.machine,
      slot: slot.index,
      uid: this.#parts.accounts.ofSlot(slot.index),
      cgroups: this.#parts.cgroups.directoriesOf(driver.unit),
      host_boot_id: hostBootId(),
      process: null,
      generation: blueprint.counters.session,
      resume: blueprint.counters.resume,
      capturing: false,
      rollbacks: [],
      retired: false,
    };
  }
}

/** Puts a disk in the place of one that the guest has unmounted. */
async function exchange(
  device: WorkspaceDevice,
  { top, versions, source }: { top: number; versions: number[]; source: WorkspaceSource },
): Promise<void> {
  await device.open(source.overlay);
  await device.push(source.overlay);
  await device.rebase(source.overlay, source.version);
  await device.grow(source.sizeBytes);
  await device.closeOverlay(top);
  for (const version of versions) if (version !== source.version.number) await device.closeVersion(version);
}

function guestOf(driver: VmDriver, vm: VmHandle): AttachedGuest {
  return {
    device: vm.workspace,
    hold: (reason) => driver.hold(reason),
    goOn: () => driver.letGo(),
    // The driver retries an end that fails.
    end: () => void driver.end('vmm_lost').catch(() => undefined),
  };
}

/** Whether the disk becomes larger than it was in the saved state. */
export function isGrown({ savedDiskMiB, shape }: Blueprint): boolean {
  return savedDiskMiB !== undefined && savedDiskMiB !== shape.diskMiB;
}

function growTimeoutMs({ savedDiskMiB, shape }: Blueprint): number {
  return ((shape.diskMiB - (savedDiskMiB ?? shape.diskMiB)) / 1024) * GROW_TIMEOUT_MS_PER_GIB;
}

/** Grows the disk if it must be larger and returns its new size, MiB. The resume then grows the guest's file system. */
async function growDisk({ blueprint, chain }: AssembledVm, timer: StepTimer): Promise<number | undefined> {
  const { shape } = blueprint;
  if (!isGrown(blueprint)) return undefined;
  await chain.grow(shape.diskMiB);
  timer.end('disk');
  return shape.diskMiB;
}
