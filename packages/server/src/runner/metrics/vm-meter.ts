/**
 * Measures one sandbox's VM on the host. Files in /proc and the sizes of overlays cost little. The VMM is asked for the
 * traffic of its block devices only if the VM has computed since the last time, as an idle guest reads and writes
 * nothing; and at least once a minute, for what a guest did with little CPU time.
 */
import type { VmMetrics, VmMetricsQuery, VmNow, VmPoint } from '../../lib/protocol/metrics-protocol.ts';
import { findAllocatedBytes } from '../host/allocated-bytes.ts';
import type { TapTraffic } from '../network/kernel/tap-traffic.ts';
import { buildPoints, findUtilization } from './build-points.ts';
import type { MeteredVm } from './metered-vm.ts';
import { SampleRing, type VmSample } from './sample-ring.ts';

/** CPU time below which a VM counts as idle: 1 % of a core between two samples. */
const IDLE_CPU_MS = 100;
const MAX_BLOCK_AGE_MS = 55_000;
/** The CPU time of less says little. */
const MIN_UTILIZATION_MS = 2000;
/** Callers within this time share a measurement. */
const SHARED_MS = 1000;
const NO_TRAFFIC: TapTraffic = { fromGuestBytes: 0, toGuestBytes: 0, fromGuestPackets: 0, toGuestPackets: 0 };
/** Traffic of the block devices, as the VMM last reported it, and when. */
const NO_BLOCKS = { readBytes: 0, writtenBytes: 0, monotonicMs: -Infinity, cpuMs: 0 };

/** A VM with the traffic at its TAP; undefined without one. */
export interface Measured {
  vm: MeteredVm;
  traffic: TapTraffic | undefined;
}

export class VmMeter {
  readonly #samples = new SampleRing();
  #unit = '';
  /** Number of the VM, among those that the sandbox had. */
  #instance = 0;
  #blocks = NO_BLOCKS;
  #isSampling = false;
  /** The last VM. A driver that is gone must not stay in memory, with the secrets of its sandbox. */
  #vm: MeteredVm | undefined;
  #vcpus = 1;
  #isRetired = false;
  #lastRead: { unit: string; monotonicMs: number; now: Promise<VmNow | null> } | undefined;

  get lastAtMs(): number {
    return this.#samples.last?.atMs ?? 0;
  }

  /** Whether there is a sample of this VM. Usage before the first one is in no point. */
  hasSampled({ unit }: MeteredVm): boolean {
    return unit === this.#unit && this.#samples.last?.instance === this.#instance;
  }

  /** The sandbox has no VM any more. Returns whether it lives on without. */
  leave(): boolean {
    this.#isRetired = this.#vm?.isRetired() ?? this.#isRetired;
    this.#vm = undefined;
    return this.#isRetired;
  }

  /** Adds a sample. Does nothing while an earlier one waits for the VMM. */
  async sample(measured: Measured): Promise<void> {
    if (this.#isSampling) return;
    this.#isSampling = true;
    try {
      const sample = await this.#measure(measured, { isFresh: false });
      if (sample !== undefined) this.#samples.push(sample);
    } finally {
      this.#isSampling = false;
    }
  }

  /** `vm` is undefined for a sandbox without a VM. */
  async read(
    vm: MeteredVm | undefined,
    query: VmMetricsQuery,
    readTraffic: (vm: MeteredVm) => TapTraffic | undefined,
  ): Promise<VmMetrics> {
    const now = vm === undefined ? null : await this.#shareNow(vm, readTraffic);
    return { now, series: this.#buildSeries(query) };
  }

  #shareNow(vm: MeteredVm, readTraffic: (vm: MeteredVm) => TapTraffic | undefined): Promise<VmNow | null> {
    const monotonicMs = performance.now();
    const last = this.#lastRead;
    if (last?.unit === vm.unit && monotonicMs - last.monotonicMs < SHARED_MS) return last.now;
    const now = this.#readNow({ vm, traffic: readTraffic(vm) });
    this.#lastRead = { unit: vm.unit, monotonicMs, now };
    return now;
  }

  #buildSeries(query: VmMetricsQuery): VmPoint[] {
    return buildPoints(this.#samples.list(), query, this.#vcpus);
  }

  async #readNow(measured: Measured): Promise<VmNow | null> {
    const sample = await this.#measure(measured, { isFresh: true });
    if (sample === undefined) return null;
    const { workspace, info } = measured.vm;
    return {
      at_ms: Math.round(sample.atMs),
      cpu_ms: Math.round(sample.cpuMs),
      cpu_utilization: this.#findRecentUtilization(sample),
      mem_bytes: sample.memBytes,
      mem_mib: info.mem_mib,
      disk_bytes: sample.diskBytes,
      disk_mib: info.disk_mib,
      read_bytes: sample.readBytes,
      written_bytes: sample.writtenBytes,
      workspace: workspace === undefined ? null : describeWorkspace(workspace),
      network: measured.traffic === undefined ? null : describeNetwork(sample),
    };
  }

  /** Returns undefined if the VM does not run, or is no longer that of the sandbox. */
  async #measure(
    { vm, traffic = NO_TRAFFIC }: Measured,
    { isFresh }: { isFresh: boolean },
  ): Promise<VmSample | undefined> {
    this.#follow(vm);
    const instance = this.#instance;
    const usage = vm.isUp ? vm.sampleUsage() : undefined;
    if (usage === undefined) return undefined;
    const moment = { atMs: Date.now(), monotonicMs: performance.now(), cpuMs: usage.cpuMs };
    const diskBytes = measureFiles(vm.listOverlayPaths());
    if (isFresh || this.#mayHaveUsedDisk(moment)) await this.#askBlocks(vm, moment);
    if (instance !== this.#instance) return undefined;
    const { readBytes, writtenBytes } = this.#blocks;
    return {
      ...moment,
      instance,
      memBytes: usage.memBytes,
      diskBytes,
      readBytes,
      writtenBytes,
      receivedBytes: traffic.toGuestBytes,
      sentBytes: traffic.fromGuestBytes,
      receivedPackets: traffic.toGuestPackets,
      sentPackets: traffic.fromGuestPackets,
    };
  }

  #follow(vm: MeteredVm): void {
    this.#vm = vm;
    this.#vcpus = vm.info.vcpus;
    if (vm.unit === this.#unit) return;
    this.#unit = vm.unit;
    this.#instance += 1;
    this.#blocks = NO_BLOCKS;
  }

  #mayHaveUsedDisk({ monotonicMs, cpuMs }: Pick<VmSample, 'monotonicMs' | 'cpuMs'>): boolean {
    const { monotonicMs: askedMs, cpuMs: askedCpuMs } = this.#blocks;
    return cpuMs - askedCpuMs >= IDLE_CPU_MS || monotonicMs - askedMs >= MAX_BLOCK_AGE_MS;
  }

  /** Keeps the last numbers if the VMM does not answer. */
  async #askBlocks(vm: MeteredVm, moment: Pick<VmSample, 'monotonicMs' | 'cpuMs'>): Promise<void> {
    const instance = this.#instance;
    const traffic = await vm.readBlockTraffic().catch(() => undefined);
    if (traffic !== undefined && instance === this.#instance) this.#blocks = { ...traffic, ...moment };
  }

  #findRecentUtilization({ instance, monotonicMs, cpuMs }: VmSample): number | null {
    const former = this.#samples
      .list()
      .findLast((each) => each.instance === instance && monotonicMs - each.monotonicMs >= MIN_UTILIZATION_MS);
    if (former === undefined) return null;
    const usedMs = Math.max(0, cpuMs - former.cpuMs);
    return findUtilization(usedMs, monotonicMs - former.monotonicMs, this.#vcpus);
  }
}

function measureFiles(paths: readonly string[]): number {
  return paths.reduce((sum, path) => sum + (findAllocatedBytes(path) ?? 0), 0);
}

function describeWorkspace({
  record: { size_bytes },
  dirtyBytes: dirty_bytes,
}: NonNullable<MeteredVm['workspace']>): VmNow['workspace'] {
  return { size_bytes, dirty_bytes };
}

function describeNetwork(sample: VmSample): VmNow['network'] {
  return {
    received_bytes: sample.receivedBytes,
    sent_bytes: sample.sentBytes,
    received_packets: sample.receivedPackets,
    sent_packets: sample.sentPackets,
  };
}
