/** Opens all that the runner needs to make VMs, and adopts the VMs that run. */
import { existsSync, rmSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { PROGRAM_FILE, UNPACK_SCRIPT } from '../lib/process/program-file.ts';
import type { Accelerators } from './accelerator/accelerators.ts';
import { CacheEvictor } from './cache/cache-evictor.ts';
import { CacheLeases } from './cache/cache-leases.ts';
import { Ballast } from './capacity/ballast.ts';
import { Admission } from './capacity/admission.ts';
import { Capacity } from './capacity/capacity.ts';
import { DiskGuard } from './capacity/disk-guard.ts';
import { Turns } from './capacity/turns.ts';
import type { CgroupTree } from './confinement/cgroup-tree.ts';
import type { Jail } from './confinement/jail.ts';
import { buildUnitLimits } from './confinement/unit-limits.ts';
import { isTmpfs } from './host/tmpfs.ts';
import { EventSpool } from './driver/event-spool.ts';
import { Fleet } from './driver/fleet.ts';
import { ImageBuilds } from './driver/image-builds.ts';
import { VmImages } from './driver/vm-images.ts';
import { TemplatePlan } from './driver/template-plan.ts';
import { SharedImages, type SharedImagesParts } from './image-objects/shared-images.ts';
import { ImageStore, type ImageStoreOptions } from './image/store/image-store.ts';
import type { MachineStore } from './machine/machine-store.ts';
import type { EgressProgram } from './network/egress/egress-session.ts';
import { openNetwork } from './network/open-network.ts';
import type { VmNetwork } from './network/vm-network.ts';
import type { RunnerConfig } from './runner-config.ts';
import { CaptureStore } from './snapshot/capture-store.ts';
import { TemplateStore, type Bindings } from './snapshot/template-store.ts';
import { openCopies, type OpenedCopies } from './open-copies.ts';
import { openDisks, type OpenedDisks } from './open-disks.ts';
import type { Workspaces } from './workspace/workspaces.ts';
import { overheadMiB } from './vm/shape.ts';
import type { Vmm } from './vm/vmm.ts';
import type { VmAccounts } from './confinement/vm-accounts.ts';

/** Number of TAPs made in advance, so that no create waits for one. */
const TAP_POOL_SIZE = 8;
const MIB = 1024 * 1024;
/** More vCPUs than cores are allowed: sandboxes are idle most of the time. */
const MIN_MAX_VCPUS = 8;
/** A start also waits for the disk and for timers: one more start than cores keeps the cores busy. */
const STARTS_BESIDES_CORES = 1;
const MAX_WAITING_STARTS = 256;
const MAX_WAIT_FOR_TURN_MS = 60_000;

export interface OpenedFleet extends Omit<OpenedCopies, typeof Symbol.asyncDispose> {
  fleet: Fleet;
  captures: CaptureStore;
  spool: EventSpool;
  images: ImageStore;
  sharedImages: SharedImages;
  plan: TemplatePlan;
  builds: ImageBuilds;
  vmImages: VmImages;
  workspaces: Workspaces;
  capacity: Capacity;
  cgroups: CgroupTree;
  network: VmNetwork;
  close: () => Promise<void>;
}

interface FleetParts {
  vmm: Vmm;
  jail: Jail;
  machines: MachineStore;
  bindings: Bindings;
  accelerators: Accelerators;
  /** Closing the fleet closes them. */
  cgroups: CgroupTree;
  accounts: VmAccounts;
  /** Rate of the host's time stamp counter. */
  tscKhz: number;
  /** IPv4 range of the guests' addresses. */
  guestCidr: string;
}

export async function openFleet(config: RunnerConfig, parts: FleetParts, log: Logger): Promise<OpenedFleet> {
  const { dataDir, runDir } = config;
  const { vmm, accounts, accelerators, cgroups } = parts;
  const disk = new DiskGuard({ directory: dataDir, reserveMiB: config.diskReserveMiB });
  const ballast = new Ballast({ directory: dataDir, disk, log });
  const capacity = buildCapacity(config, accelerators, disk);
  const leases = new CacheLeases();
  let evictor: CacheEvictor | undefined;
  const sweepCache = (): void => evictor?.request();
  const fetchPulled: SharedImages['fetchPulled'] = (wanted) => sharedImages.fetchPulled(wanted);
  const images = await openImages(config, parts, { leases, onStored: sweepCache, fetchPulled, log });
  const vmsDirectory = join(dataDir, 'vms');
  const spool = EventSpool.open(join(dataDir, 'events'), {
    ballast,
    isExpected: existsSync(vmsDirectory),
    log,
  });
  const network = await openFleetNetwork(config, parts, { spool, log });
  const persistent = openDisks(config, accounts, log);
  const { workspaces, serverDirectory: blocksDirectory } = persistent;
  const around = { capacity, network, leases, blocksDirectory, onStored: sweepCache, log };
  const templates = openTemplates(config, parts, around);
  const captures = openCaptures(config, sweepCache, log);
  const makeRoom = (neededMiB: number): Promise<void> => copying.makeRoom(neededMiB);
  const imageParts = { images, leases, makeRoom, onStored: sweepCache, log };
  const sharedImages = openSharedImages(config, persistent, imageParts);
  const plan = new TemplatePlan({ accelerators, images, sharedImages, templates });
  const stores = { plan, disk, ballast, capacity, leases, network, spool, workspaces };
  const fleet = new Fleet({
    ...stores,
    cgroups,
    vmm,
    accounts,
    log,
    vmsDirectory,
    warmPoolLimit: config.warmPoolLimit,
    socketsDirectory: join(runDir, 'v'),
    hasCapture: (id) => captures.find(id) !== undefined,
    onVmGone: sweepCache,
  });
  await fleet.adoptAll();
  // Only after adoption: adopted VMs first lease the images and templates they were made from.
  const cache = startEvictor(config, { leases, images, templates, fleet, log });
  evictor = cache;
  const cached = { captures, images, leases };
  const copying = openCopies(config, parts, { fleet, ...cached, network, persistent, disk, log });
  const close = async (): Promise<void> => {
    await copying[Symbol.asyncDispose]();
    await sharedImages[Symbol.asyncDispose]();
    await cache.close();
    await fleet.close();
    workspaces[Symbol.dispose]();
    await network.close();
    cgroups.close();
    ballast[Symbol.dispose]();
  };
  const builds = new ImageBuilds({ plan, capacity, leases, giveWay: () => fleet.giveWay() });
  const vmImages = new VmImages({ fleet, images });
  const stored = { captures, spool, images, sharedImages, plan, builds, vmImages, workspaces };
  return { fleet, ...stored, ...copying, capacity, cgroups, network, close };
}

function openCaptures({ dataDir, tools }: RunnerConfig, onRemoved: () => void, log: Logger): CaptureStore {
  return CaptureStore.open({ directory: join(dataDir, 'captures'), program: tools.capture, onRemoved, log });
}

function openSharedImages(
  { objectStore }: RunnerConfig,
  { server }: OpenedDisks,
  {
    images,
    ...parts
  }: Pick<SharedImagesParts, 'leases' | 'makeRoom' | 'onStored' | 'log'> & {
    images: ImageStore;
  },
): SharedImages {
  const isShared = objectStore !== 'directory';
  return new SharedImages({ ...parts, images: images.stored, server, isShared });
}

function startEvictor(
  config: RunnerConfig,
  parts: { leases: CacheLeases; images: ImageStore; templates: TemplateStore; fleet: Fleet; log: Logger },
): CacheEvictor {
  const { leases, images, templates, fleet, log } = parts;
  const cache = new CacheEvictor({
    maxBytes: config.imageCacheMiB * MIB,
    leases,
    images: images.stored,
    templates: templates.catalogue,
    onTemplateEvicted: (key) => fleet.forgetTemplate(key),
    log,
  });
  cache.request();
  return cache;
}

/** Builds the capacity of this machine from its hardware and the settings. */
function buildCapacity(
  config: RunnerConfig,
  accelerators: Pick<Accelerators, 'current'>,
  disk: DiskGuard,
): Capacity {
  const cores = availableParallelism();
  const admission = new Admission({
    hostMemMiB: hostMemMiB(),
    cores,
    memOvercommit: config.memOvercommit,
    cpuOvercommit: config.cpuOvercommit,
    overheadMiB: (accelerator = accelerators.current.accelerator) => overheadMiB(accelerator),
    availableMiB,
  });
  return new Capacity({
    admission,
    turns: new Turns({
      maxRunning: cores + STARTS_BESIDES_CORES,
      maxWaiting: MAX_WAITING_STARTS,
      maxWaitMs: MAX_WAIT_FOR_TURN_MS,
    }),
    disk,
    maxVcpus: Math.max(MIN_MAX_VCPUS, cores),
    availableMiB,
  });
}

/** Returns the memory limit of the container, or the memory of the machine if that is smaller. */
function hostMemMiB(): number {
  const constrained = process.constrainedMemory();
  const total = totalmem();
  return Math.floor((constrained > 0 ? Math.min(constrained, total) : total) / MIB);
}

function availableMiB(): number {
  return process.availableMemory() / MIB;
}

function openFleetNetwork(
  config: RunnerConfig,
  { guestCidr, accounts }: FleetParts,
  { spool, log }: { spool: EventSpool; log: Logger },
): Promise<VmNetwork> {
  const { nft, ip, hostctl } = config.tools;
  return openNetwork(config.network, {
    slug: config.slug,
    guestCidr,
    tools: { nft, ip, hostctl },
    poolSize: TAP_POOL_SIZE,
    openPrivateRanges: [...config.openPrivateRanges],
    ...(config.resolvers.length === 0 ? {} : { upstreamResolvers: config.resolvers }),
    egressProgram: buildEgressProgram(accounts.egress, hostctl),
    onNotes: (notes) => spool.addNotes(notes),
    log,
  });
}

/** The egress process is this program with another subcommand. */
function buildEgressProgram(uid: number, hostctl: string): EgressProgram {
  return {
    path: PROGRAM_FILE,
    args: ['egress', String(uid)],
    hostctl,
    mustBeUnprivileged: process.getuid?.() === 0,
  };
}

function openTemplates(
  { dataDir, runDir, tools }: RunnerConfig,
  { vmm, machines, accounts, cgroups, bindings }: FleetParts,
  around: {
    capacity: Capacity;
    network: VmNetwork;
    leases: CacheLeases;
    blocksDirectory: string;
    onStored: () => void;
    log: Logger;
  },
): TemplateStore {
  const { capacity, network, leases, blocksDirectory, onStored, log } = around;
  // An earlier version left this directory; VMs and templates that need a disk from it have their own hard link.
  rmSync(join(dataDir, 'scratch'), { recursive: true, force: true });
  const socketDirectory = join(runDir, 't');
  rmSync(socketDirectory, { recursive: true, force: true });
  return TemplateStore.open({
    directory: join(dataDir, 'templates'),
    socketDirectory,
    vmm,
    machine: machines.current.key,
    mke2fs: tools.mke2fs,
    uid: accounts.template,
    blocksDirectory,
    bindings,
    leases,
    onStored,
    inTurn: (needs, boot) => capacity.inTurn(needs, boot),
    // The memory and the disk of a template are files in the data directory.
    enclose: (id, shape) => {
      const tmpfsMiB = isTmpfs(dataDir) ? shape.diskMiB : 0;
      return cgroups.enclose(id, buildUnitLimits({ shape, tmpfsMiB }));
    },
    network,
    log,
  });
}

function openImages(
  config: RunnerConfig,
  { jail, accounts, cgroups }: FleetParts,
  parts: Pick<ImageStoreOptions, 'leases' | 'onStored' | 'fetchPulled' | 'log'>,
): Promise<ImageStore> {
  return ImageStore.open({
    directory: join(config.dataDir, 'images'),
    unpacking: {
      jail,
      node: process.execPath,
      script: UNPACK_SCRIPT,
      tar2sqfs: config.tools.tar2sqfs,
      uids: accounts.images,
      enclose: (unit, limits) => cgroups.enclose(unit, limits),
      isInMemory: isTmpfs(config.dataDir),
      log: parts.log,
    },
    mirrors: config.registryMirrors,
    insecureRegistries: [...config.insecureRegistries],
    builtin: [...config.builtinImages],
    localDirectory: config.localImagesDir,
    limits: { minFreeBytes: config.diskReserveMiB * MIB },
    ...parts,
  });
}
