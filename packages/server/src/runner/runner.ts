/** Composition root of the runner: the one place where its parts meet. */
import { createHash } from 'node:crypto';
import { mkdirSync, rmSync, statSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { lockInstance } from '../lib/instance-lock.ts';
import { RUNNER_PROTOCOL_VERSION } from '../lib/runner-protocol.ts';
import { ScratchStore } from './disk/scratch-store.ts';
import { EventSpool } from './driver/event-spool.ts';
import { Fleet } from './driver/fleet.ts';
import { RunnerServer } from './http/runner-server.ts';
import { ImageStore } from './image/image-store.ts';
import { GuestNetwork } from './network/guest-network.ts';
import type { RunnerConfig } from './runner-config.ts';
import { TemplateStore } from './snapshot/template-store.ts';
import { chooseAccelerator, type AcceleratorChoice } from './vmm/accelerator.ts';
import { measureTscKhz } from './vmm/host-tsc.ts';
import { Qemu } from './vmm/qemu.ts';

/** TAPs made in advance, so that none is made while a create waits. */
const TAP_POOL_SIZE = 8;
/** Uids before those of the VMs: the probe's and the template's. */
const SERVICE_UIDS = 2;
const VM_UIDS = 16_384;
/** More vCPUs than cores are allowed: sandboxes are idle most of the time. */
const MIN_MAX_VCPUS = 8;

export interface Runner extends AsyncDisposable {
  accelerator: AcceleratorChoice;
}

export async function startRunner(config: RunnerConfig, log: Logger): Promise<Runner> {
  mkdirSync(config.dataDir, { recursive: true, mode: 0o711 });
  mkdirSync(config.runDir, { recursive: true, mode: 0o711 });
  await using setup = new AsyncDisposableStack();
  const lock = setup.use(await lockInstance('runner', config.dataDir));
  const tscKhz = await measureTscKhz();
  const bindings = bindingsOf(config, tscKhz);
  const { qemu: qemuPath, kernel: kernelPath, initramfs: initramfsPath } = config.tools;
  const vmm = new Qemu({ qemuPath, kernelPath, initramfsPath, tscKhz }, log);
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
  const server = await RunnerServer.listen(
    {
      fleet: fleet.fleet,
      spool: fleet.spool,
      images: fleet.images,
      status: () => ({
        protocol: RUNNER_PROTOCOL_VERSION,
        accelerator: accelerator.accelerator,
        accelerator_reason: accelerator.reason,
        max_vcpus: Math.max(MIN_MAX_VCPUS, availableParallelism()),
        max_mem_mib: Math.floor(totalmem() / (1024 * 1024)),
        vms: fleet.fleet.list().length,
      }),
      log,
    },
    config.socketPath,
  );
  setup.defer(() => server.close());
  setup.defer(() => lock.leave());
  const running = setup.move();
  return { accelerator, [Symbol.asyncDispose]: () => running.disposeAsync() };
}

interface OpenedFleet {
  fleet: Fleet;
  spool: EventSpool;
  images: ImageStore;
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
  const images = await ImageStore.open({
    directory: join(dataDir, 'images'),
    tools: { skopeo: tools.skopeo, tar2sqfs: tools.tar2sqfs },
    mirrors: config.registryMirrors,
    insecureRegistries: [...config.insecureRegistries],
    builtin: [...config.builtinImages],
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
    acquireSlot: async (id) => ({ ...(await network.acquire(id)), release: () => network.release(id) }),
    log,
  });
  const spool = EventSpool.open(join(dataDir, 'events'));
  const uids = {
    serviceFirst: uidBase,
    first: uidBase + SERVICE_UIDS,
    last: uidBase + SERVICE_UIDS + VM_UIDS - 1,
  };
  const vmsDirectory = join(dataDir, 'vms');
  const socketsDirectory = join(runDir, 'v');
  const { accelerator } = parts.accelerator;
  const fleet = new Fleet({
    warmPoolLimit: config.warmPoolLimit,
    accelerator,
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
    close: async () => {
      await fleet.close();
      await network.close();
    },
  };
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
