/** Composition root of the runner: the one place where its parts meet. */
import { createHash } from 'node:crypto';
import { mkdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { lockInstance } from '../lib/instance-lock.ts';
import { RUNNER_PROTOCOL_VERSION } from '../lib/runner-protocol.ts';
import { Jail } from './confinement/jail.ts';
import { buildCapacity } from './capacity/build-capacity.ts';
import type { Capacity } from './capacity/capacity.ts';
import { DiskGuard } from './capacity/disk-guard.ts';
import { CgroupTree } from './confinement/cgroup-tree.ts';
import { buildUnitLimits } from './confinement/unit-limits.ts';
import { isTmpfs } from './disk/tmpfs.ts';
import { ScratchStore } from './disk/scratch-store.ts';
import { EventSpool } from './driver/event-spool.ts';
import { Fleet } from './driver/fleet.ts';
import { RunnerServer } from './http/runner-server.ts';
import { ImageStore } from './image/image-store.ts';
import { GuestNetwork } from './network/guest-network.ts';
import type { RunnerConfig } from './runner-config.ts';
import { TemplateStore, type Enclosure } from './snapshot/template-store.ts';
import { chooseAccelerator, type AcceleratorChoice } from './vmm/accelerator.ts';
import { listProcessesOfUids } from './vmm/host-process.ts';
import { measureTscKhz } from './vmm/host-tsc.ts';
import type { TemplateShape } from './vmm/qemu-arguments.ts';
import { Qemu } from './vmm/qemu.ts';

/** TAPs made in advance, so that none is made while a create waits. */
const TAP_POOL_SIZE = 8;
/** Uids before those of the VMs: the probe's and the template's. */
const SERVICE_UIDS = 2;
const VM_UIDS = 16_384;

export interface Runner extends AsyncDisposable {
  accelerator: AcceleratorChoice;
}

export async function startRunner(config: RunnerConfig, log: Logger): Promise<Runner> {
  mkdirSync(config.dataDir, { recursive: true, mode: 0o711 });
  mkdirSync(config.runDir, { recursive: true, mode: 0o711 });
  await using setup = new AsyncDisposableStack();
  setup.use(await lockInstance('runner', config.dataDir));
  const tscKhz = await measureTscKhz();
  const bindings = bindingsOf(config, tscKhz);
  const { kernel: kernelPath, initramfs: initramfsPath } = config.tools;
  const jail = await Jail.open({
    launcherPath: config.tools.jail,
    qemuPath: config.tools.qemu,
    directory: join(config.dataDir, 'qemu'),
    uid: config.uidBase,
    log,
  });
  const vmm = new Qemu({ jail, kernelPath, initramfsPath, tscKhz }, log);
  const accelerator = await chooseAccelerator({
    vmm,
    cachePath: join(config.dataDir, 'accelerator.json'),
    directory: join(config.dataDir, 'probe'),
    uid: config.uidBase,
    binding: createHash('sha256').update(JSON.stringify(bindings)).digest('hex'),
    log,
  });
  const fleet = await openFleet(config, { vmm, bindings, accelerator }, log);
  setup.defer(() => fleet.close());
  jail.sweep(listProcessesOfUids(config.uidBase, lastUid(config)).map(({ pid }) => pid));
  const server = await RunnerServer.listen(
    {
      fleet: fleet.fleet,
      spool: fleet.spool,
      images: fleet.images,
      status: () => ({
        protocol: RUNNER_PROTOCOL_VERSION,
        accelerator: accelerator.accelerator,
        accelerator_reason: accelerator.reason,
        confinement: jail.confinement.kind,
        confinement_reason: jail.confinement.reason,
        max_vcpus: fleet.capacity.maxVcpus,
        max_mem_mib: fleet.capacity.maxMemMiB,
        vms: fleet.fleet.list().length,
        paused_vms: fleet.fleet.pausedCount,
        capacity: fleet.capacity.status,
        cgroups: fleet.cgroups.status,
      }),
      log,
    },
    config.socketPath,
  );
  setup.defer(() => server.close());
  const running = setup.move();
  return { accelerator, [Symbol.asyncDispose]: () => running.disposeAsync() };
}

function lastUid({ uidBase }: RunnerConfig): number {
  return uidBase + SERVICE_UIDS + VM_UIDS - 1;
}

interface OpenedFleet {
  fleet: Fleet;
  spool: EventSpool;
  images: ImageStore;
  capacity: Capacity;
  cgroups: CgroupTree;
  close: () => Promise<void>;
}

interface FleetParts {
  vmm: Qemu;
  bindings: Record<string, string>;
  accelerator: AcceleratorChoice;
}

async function openFleet(config: RunnerConfig, parts: FleetParts, log: Logger): Promise<OpenedFleet> {
  const { dataDir, runDir, tools, uidBase } = config;
  const { vmm } = parts;
  const cgroups = CgroupTree.open({ slug: config.slug, log });
  const disk = new DiskGuard({ directory: dataDir, reserveMiB: config.diskReserveMiB });
  const capacity = buildCapacity(config, parts.accelerator.accelerator, disk);
  const images = await ImageStore.open({
    directory: join(dataDir, 'images'),
    tools: { tar2sqfs: tools.tar2sqfs },
    mirrors: config.registryMirrors,
    insecureRegistries: [...config.insecureRegistries],
    builtin: [...config.builtinImages],
    limits: { minFreeBytes: config.diskReserveMiB * 1024 * 1024 },
    log,
  });
  const network = await GuestNetwork.open({
    slug: config.slug,
    guestCidr: config.guestCidr,
    tools: { nft: tools.nft, ip: tools.ip },
    poolSize: TAP_POOL_SIZE,
    openPrivateRanges: [...config.openPrivateRanges],
    ...(config.resolvers.length === 0 ? {} : { upstreamResolvers: config.resolvers }),
    log,
  });
  const scratch = ScratchStore.open(join(dataDir, 'scratch'), tools);
  const templateSockets = join(runDir, 't');
  rmSync(templateSockets, { recursive: true, force: true });
  const templates = TemplateStore.open({
    directory: join(dataDir, 'templates'),
    socketDirectory: templateSockets,
    vmm,
    scratch,
    uid: uidBase + 1,
    bindings: parts.bindings,
    inTurn: (diskMiB, boot) => capacity.inTurn({ diskMiB }, boot),
    enclose: (id, shape) => encloseTemplate(cgroups, { id, shape, directory: dataDir }),
    acquireSlot: async (id) => ({ ...(await network.acquire(id)), release: () => network.release(id) }),
    log,
  });
  const spool = EventSpool.open(join(dataDir, 'events'));
  const uids = {
    serviceFirst: uidBase,
    first: uidBase + SERVICE_UIDS,
    last: lastUid(config),
  };
  const vmsDirectory = join(dataDir, 'vms');
  const socketsDirectory = join(runDir, 'v');
  const { accelerator } = parts.accelerator;
  const fleet = new Fleet({
    warmPoolLimit: config.warmPoolLimit,
    accelerator,
    disk,
    cgroups,
    capacity,
    images,
    templates,
    scratch,
    network,
    vmm,
    uids,
    vmsDirectory,
    socketsDirectory,
    spool,
    log,
  });
  await fleet.adoptAll();
  return {
    fleet,
    spool,
    images,
    capacity,
    cgroups,
    close: async () => {
      await fleet.close();
      await network.close();
      cgroups.close();
    },
  };
}

/** A template's memory is a file in the data directory. */
async function encloseTemplate(
  cgroups: CgroupTree,
  { id, shape, directory }: { id: string; shape: TemplateShape; directory: string },
): Promise<Enclosure> {
  const directories = cgroups.directoriesOf(id);
  await cgroups.remove(directories);
  const tmpfsMiB = isTmpfs(directory) ? shape.diskMiB : 0;
  const cgroupProcs = await cgroups.create(id, buildUnitLimits({ shape, tmpfsMiB }));
  return { cgroupProcs, release: () => cgroups.remove(directories) };
}

/** Two measurements of one counter differ by some parts in a million; two hosts' counters by more than this. */
const TSC_GRAIN_KHZ = 10_000;

/** What saved state is bound to. Path, size and time stand for the content: packages replace files whole. */
function bindingsOf(config: RunnerConfig, tscKhz: number): Record<string, string> {
  const bound = { qemu: config.tools.qemu, kernel: config.tools.kernel, initramfs: config.tools.initramfs };
  const files = Object.fromEntries(
    Object.entries(bound).map(([name, path]) => {
      const { size, mtimeMs } = statSync(path);
      return [name, `${path}:${size}:${mtimeMs}`];
    }),
  );
  return { ...files, tsc: String(Math.round(tscKhz / TSC_GRAIN_KHZ)) };
}
