/** Puts together all that VMs are made from, and takes over those that run. */
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { PROGRAM_FILE } from '../lib/process/program-file.ts';
import type { Accelerators } from './accelerator/accelerators.ts';
import { CacheEvictor } from './cache/cache-evictor.ts';
import { CacheLeases } from './cache/cache-leases.ts';
import { Ballast } from './capacity/ballast.ts';
import { buildCapacity } from './capacity/build-capacity.ts';
import type { Capacity } from './capacity/capacity.ts';
import { DiskGuard } from './capacity/disk-guard.ts';
import type { CgroupTree } from './confinement/cgroup-tree.ts';
import { buildUnitLimits } from './confinement/unit-limits.ts';
import { isTmpfs } from './host/tmpfs.ts';
import { EventSpool } from './driver/event-spool.ts';
import { Fleet } from './driver/fleet.ts';
import { ImageBuilds } from './driver/image-builds.ts';
import { TemplatePlan } from './driver/template-plan.ts';
import { VmCopies } from './driver/vm-copies.ts';
import { VmRollbacks } from './driver/vm-rollbacks.ts';
import { ImageStore, type ImageStoreOptions } from './image/store/image-store.ts';
import type { MachineStore } from './machine/machine-store.ts';
import type { EgressProgram } from './network/egress/egress-session.ts';
import { openNetwork } from './network/open-network.ts';
import type { VmNetwork } from './network/vm-network.ts';
import type { RunnerConfig } from './runner-config.ts';
import { CaptureStore } from './snapshot/capture-store.ts';
import { TemplateStore, type Bindings } from './snapshot/template-store.ts';
import type { Vmm } from './vm/vmm.ts';
import type { VmAccounts } from './confinement/vm-accounts.ts';

/** TAPs made in advance, so that none is made while a create waits. */
const TAP_POOL_SIZE = 8;
const MIB = 1024 * 1024;

export interface OpenedFleet {
  fleet: Fleet;
  copies: VmCopies;
  rollbacks: VmRollbacks;
  captures: CaptureStore;
  spool: EventSpool;
  images: ImageStore;
  plan: TemplatePlan;
  builds: ImageBuilds;
  capacity: Capacity;
  cgroups: CgroupTree;
  network: VmNetwork;
  close: () => Promise<void>;
}

interface FleetParts {
  vmm: Vmm;
  machines: MachineStore;
  bindings: Bindings;
  accelerators: Accelerators;
  /** Closed with the fleet. */
  cgroups: CgroupTree;
  accounts: VmAccounts;
  /** Rate of the host's time stamp counter. */
  tscKhz: number;
  /** Addresses of the guests. */
  guestCidr: string;
}

export async function openFleet(config: RunnerConfig, parts: FleetParts, log: Logger): Promise<OpenedFleet> {
  const { dataDir, runDir, tools } = config;
  const { vmm, machines, accounts, accelerators, cgroups } = parts;
  const disk = new DiskGuard({ directory: dataDir, reserveMiB: config.diskReserveMiB });
  const ballast = new Ballast({ directory: dataDir, disk, log });
  const capacity = buildCapacity(config, accelerators, disk);
  const leases = new CacheLeases();
  let evictor: CacheEvictor | undefined;
  const onStored = (): void => evictor?.request();
  const images = await openImages(config, { leases, onStored, log });
  const vmsDirectory = join(dataDir, 'vms');
  const spool = EventSpool.open(join(dataDir, 'events'), {
    ballast,
    isExpected: existsSync(vmsDirectory),
    log,
  });
  const network = await openNetwork(config.network, {
    slug: config.slug,
    guestCidr: parts.guestCidr,
    tools: { nft: tools.nft, ip: tools.ip },
    poolSize: TAP_POOL_SIZE,
    openPrivateRanges: [...config.openPrivateRanges],
    ...(config.resolvers.length === 0 ? {} : { upstreamResolvers: config.resolvers }),
    egressProgram: buildEgressProgram(accounts.egress),
    onNotes: (notes) => spool.addNotes(notes),
    log,
  });
  const templates = openTemplates(config, parts, { capacity, network, leases, onStored, log });
  const captures = CaptureStore.open({ directory: join(dataDir, 'captures'), program: tools.capture, log });
  const plan = new TemplatePlan({ accelerators, images, templates });
  const fleet = new Fleet({
    warmPoolLimit: config.warmPoolLimit,
    plan,
    disk,
    ballast,
    cgroups,
    capacity,
    leases,
    network,
    vmm,
    accounts,
    vmsDirectory,
    socketsDirectory: join(runDir, 'v'),
    spool,
    hasCapture: (id) => captures.find(id) !== undefined,
    log,
  });
  await fleet.adoptAll();
  const hasNetwork = network.absence === undefined;
  const bindings = { machines, accelerators, hasNetwork, tscKhz: parts.tscKhz };
  const copies = new VmCopies({ fleet, captures, bindings, disk, program: tools.capture, log });
  const rollbacks = new VmRollbacks({ fleet, captures, bindings });
  // Not before: VMs that are adopted hold what they were made from.
  const cache = new CacheEvictor({
    maxBytes: config.imageCacheMiB * MIB,
    leases,
    images: images.stored,
    templates: templates.catalogue,
    onTemplateEvicted: (key) => fleet.forgetTemplate(key),
    log,
  });
  evictor = cache;
  cache.request();
  const close = async (): Promise<void> => {
    await cache.close();
    await fleet.close();
    await network.close();
    cgroups.close();
    ballast[Symbol.dispose]();
  };
  const builds = new ImageBuilds({ plan, capacity, leases, giveWay: () => fleet.giveWay() });
  return {
    fleet,
    copies,
    rollbacks,
    captures,
    spool,
    images,
    plan,
    builds,
    capacity,
    cgroups,
    network,
    close,
  };
}

/** This program in another role. */
function buildEgressProgram(uid: number): EgressProgram {
  return {
    path: PROGRAM_FILE,
    args: ['egress', String(uid)],
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
    onStored: () => void;
    log: Logger;
  },
): TemplateStore {
  const { capacity, network, leases, onStored, log } = around;
  // Of an earlier version: what needs a disk from there has a link of it.
  rmSync(join(dataDir, 'scratch'), { recursive: true, force: true });
  const socketDirectory = join(runDir, 't');
  rmSync(socketDirectory, { recursive: true, force: true });
  return TemplateStore.open({
    directory: join(dataDir, 'templates'),
    socketDirectory,
    vmm,
    machine: machines.current,
    mke2fs: tools.mke2fs,
    uid: accounts.template,
    bindings,
    leases,
    onStored,
    inTurn: (needs, boot) => capacity.inTurn(needs, boot),
    // A template's memory is a file in the data directory.
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
  parts: Pick<ImageStoreOptions, 'leases' | 'onStored' | 'log'>,
): Promise<ImageStore> {
  return ImageStore.open({
    directory: join(config.dataDir, 'images'),
    tools: { tar2sqfs: config.tools.tar2sqfs },
    mirrors: config.registryMirrors,
    insecureRegistries: [...config.insecureRegistries],
    builtin: [...config.builtinImages],
    localDirectory: config.localImagesDir,
    limits: { minFreeBytes: config.diskReserveMiB * MIB },
    ...parts,
  });
}
