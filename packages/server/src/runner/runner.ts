/** Composition root of the runner: resources of the host, the parts that use them, and the socket for control. */
import { createHash } from 'node:crypto';
import { dirname, join } from 'node:path';
import type { Logger } from 'pino';
import { hostMoment } from '../lib/host-clock.ts';
import { lockDirectories } from '../lib/process/instance-lock.ts';
import type { RunnerMetrics } from '../lib/protocol/metrics-protocol.ts';
import { digestRoster } from '../lib/protocol/roster-digest.ts';
import {
  toBootMoment,
  type CgroupStatus,
  type Heartbeat,
  type Roster,
  type RunnerStatus,
} from '../lib/protocol/runner-protocol.ts';
import { PROTOCOL_VERSIONS } from '../lib/protocol/wire-headers.ts';
import { Accelerators, type AcceleratorChoice } from './accelerator/accelerators.ts';
import { bootShape, type BootPlace } from './accelerator/boot-once.ts';
import { bootWithKvm } from './accelerator/boot-with-kvm.ts';
import { findKvmObstacle, type KvmProbe } from './accelerator/kvm-probe.ts';
import { openKvmRecord } from './accelerator/kvm-record.ts';
import { CgroupTree } from './confinement/cgroup-tree.ts';
import type { ConfinementChoice } from './confinement/confinement-probe.ts';
import { claimRanges } from './host-ranges/claim-ranges.ts';
import type { HostRanges } from './host-ranges/host-ranges.ts';
import { buildUnitLimits } from './confinement/unit-limits.ts';
import { isTmpfs } from './host/tmpfs.ts';
import { Fence } from './http/fence.ts';
import { RunnerServer } from './http/runner-server.ts';
import { openRunnerNetwork } from './identity/runner-network.ts';
import { measureRunner } from './measure-runner.ts';
import { findMetered, listMetered } from './metrics/metered-driver.ts';
import { VmMeters } from './metrics/vm-meters.ts';
import { openFleet, type OpenedFleet } from './open-fleet.ts';
import { openVmm } from './open-vmm.ts';
import type { RunnerConfig } from './runner-config.ts';
import type { Bindings } from './snapshot/template-store.ts';
import type { CpuSetting } from '../lib/cpu-setting.ts';
import { measureTscKhz } from './host/host-tsc.ts';
import { SeparateAccounts, SharedAccount, type VmAccounts } from './confinement/vm-accounts.ts';

export interface Runner extends AsyncDisposable {
  accelerator: AcceleratorChoice;
  /** Why guests have no network; undefined when they have one. */
  networkAbsence: string | undefined;
  ranges: HostRanges;
  cgroups: CgroupStatus;
}

/** Starts the runner. Calls `onAccelerator` when the accelerator of new VMs changes after the start. */
export async function startRunner(
  config: RunnerConfig,
  log: Logger,
  onAccelerator: (choice: AcceleratorChoice) => void = () => undefined,
): Promise<Runner> {
  await using setup = new AsyncDisposableStack();
  const lock = setup.use(await lockDirectories('runner', config));
  const network = config.listen && openRunnerNetwork(config.dataDir, config.listen);
  const fence = new Fence(config.dataDir);
  const ranges = await claimRanges(config, log);
  const accounts = openAccounts(config, ranges.uidBase, log);
  const tscKhz = await measureTscKhz(config.tools.hostctl);
  const { vmm, machines, jail } = await openVmm(
    {
      machinesDirectory: join(config.dataDir, 'machines'),
      formerDirectory: join(config.dataDir, 'qemu'),
      tools: config.tools,
      uid: accounts.probe,
      tscKhz,
    },
    log,
  );
  const { key: machine } = machines.current;
  const bindings = bindingsOf(machine, tscKhz);
  const cgroups = CgroupTree.open({ slug: config.slug, log });
  const place = { vmm, machine, directory: probeDirectory(config), uid: accounts.probe };
  const accelerators = await Accelerators.open({
    mode: config.accelerator,
    probe: { findObstacle: findKvmObstacle, boot: buildBoot(place, { cpu: config.cpu, cgroups, log }) },
    record: openKvmRecord(join(config.dataDir, 'accelerator.json'), hash({ ...bindings, cpu: config.cpu })),
    log,
  });
  const { guestCidr } = ranges;
  const parts = { vmm, jail, machines, bindings, accelerators, cgroups, accounts, tscKhz, guestCidr };
  const opened = await openFleet(config, parts, log);
  setup.defer(() => opened.close());
  const livePids = accounts.listAllVmms().map(({ pid }) => pid);
  machines.sweep(new Set([...opened.captures.machineKeys, ...opened.fleet.vms.machineKeys]), livePids);
  const status = (): RunnerStatus =>
    buildStatus(opened, { accelerators, confinement: jail.confinement, fence });
  const measured = { ...opened, accelerators, confinement: jail.confinement, machines };
  const metrics = (): RunnerMetrics => measureRunner(measured);
  const meters = setup.use(openMeters(opened, log));
  const lists = { roster: () => buildRoster(opened), heartbeat: () => buildHeartbeat(opened) };
  const served = { ...opened, ...lists, status, metrics, meters, fence, log };
  const { socketPath } = config;
  const server = await RunnerServer.listen(served, { socketPath, ...(network && { network }) });
  setup.defer(() => server.close());
  setup.defer(() => lock.leave());
  // Must follow adoption, which kills every VM that no record names: it would kill a probe VM as a stray.
  setup.use(accelerators);
  accelerators.watch((choice) => onAccelerator(choice));
  const running = setup.move();
  return {
    accelerator: accelerators.current,
    networkAbsence: opened.network.absence,
    ranges,
    cgroups: opened.cgroups.status,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

function openMeters({ fleet, network }: OpenedFleet, log: Logger): VmMeters {
  return new VmMeters({
    listVms: () => listMetered(fleet.vms),
    findVm: (id) => findMetered(fleet.vms, id),
    readTraffic: (units) => network.readTraffic(units),
    log,
  });
}

interface StatusParts {
  accelerators: Accelerators;
  confinement: ConfinementChoice;
  fence: Fence;
}

function buildStatus(
  { fleet, network, capacity, cgroups, workspaces }: OpenedFleet,
  { accelerators, confinement, fence }: StatusParts,
): RunnerStatus {
  const { accelerator, reason } = accelerators.current;
  return {
    runner_id: workspaces.runner,
    protocol: PROTOCOL_VERSIONS,
    epoch: fence.epoch,
    accelerator,
    accelerator_reason: reason,
    confinement: confinement.kind,
    confinement_reason: confinement.reason,
    network: network.absence === undefined ? 'filtered' : 'none',
    network_reason: network.absence ?? '',
    max_vcpus: capacity.maxVcpus,
    max_mem_mib: capacity.maxMemMiB,
    vms: fleet.vms.list().length,
    paused_vms: fleet.vms.pausedCount,
    capacity: capacity.status,
    cgroups: cgroups.status,
  };
}

function buildRoster({ fleet, copies, workspaces }: OpenedFleet): Roster {
  const moment = toBootMoment(hostMoment());
  return { runner_id: workspaces.runner, moment, vms: fleet.vms.list(), starting: copies.restoring };
}

function buildHeartbeat({ fleet, workspaces, capacity }: OpenedFleet): Heartbeat {
  return {
    type: 'heartbeat',
    runner_id: workspaces.runner,
    moment: toBootMoment(hostMoment()),
    capacity: capacity.status,
    roster: digestRoster(fleet.vms.list()),
  };
}

/** Boots the probe VM with the limits of a sandbox: a guest that hangs uses all the CPU it gets. */
function buildBoot(
  place: BootPlace,
  { cpu, cgroups, log }: { cpu: CpuSetting; cgroups: CgroupTree; log: Logger },
): KvmProbe['boot'] {
  return async (timeoutMs, signal) => {
    const shape = bootShape('kvm');
    const tmpfsMiB = isTmpfs(dirname(place.directory)) ? shape.memMiB : 0;
    const limits = buildUnitLimits({ shape, tmpfsMiB });
    const { cgroups: entered, release } = await cgroups.enclose(`probe-${process.pid}`, limits);
    try {
      return await bootWithKvm({ ...place, timeoutMs, cgroups: entered, ...(signal && { signal }) }, cpu);
    } finally {
      await release().catch((error: unknown) =>
        log.warn({ err: error }, 'the control groups of a VM are left over'),
      );
    }
  };
}

function hash(bound: Bindings & { cpu: CpuSetting }): string {
  return createHash('sha256').update(JSON.stringify(bound)).digest('hex');
}

function probeDirectory(config: RunnerConfig): string {
  return join(config.dataDir, 'probe');
}

function openAccounts(config: RunnerConfig, uidBase: number, log: Logger): VmAccounts {
  const uid = process.getuid?.() ?? 0;
  if (uid === 0) return new SeparateAccounts(uidBase);
  log.warn(
    { uid },
    'all VMs run as the user of the service; run the service as root to isolate them from each other',
  );
  const directories = ['t', 'v'].map((name) => join(config.runDir, name));
  return new SharedAccount(uid, [...directories, probeDirectory(config)]);
}

/** Measurements of one counter differ by a few parts in a million; counters of two hosts differ by more than this. */
const TSC_GRAIN_KHZ = 10_000;

/** The machine and the host properties that saved state is bound to. */
function bindingsOf(machineKey: string, tscKhz: number): Bindings {
  return {
    versions: { machineKey },
    host: { tsc: String(Math.round(tscKhz / TSC_GRAIN_KHZ)) },
  };
}
