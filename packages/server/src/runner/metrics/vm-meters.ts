/**
 * Samples the usage of all VMs, and keeps the samples of the last hour in memory:
 *
 *   sandbox runs ─► a sample within a second, then every 10 s ─► hibernated: kept for an hour ─► resumed: continued
 *                                                            └─► ended: dropped
 *
 * Billing reads usage itself; the samples only give it a last value for a process that is suddenly gone. The next
 * runner process begins without any.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { AppError, METRICS_KEPT_S, METRICS_SAMPLE_S } from '@coppice/contract';
import type { Logger } from 'pino';
import type { VmMetrics, VmMetricsQuery } from '../../lib/protocol/metrics-protocol.ts';
import type { TapTraffic } from '../network/kernel/tap-traffic.ts';
import type { MeteredVm } from './metered-vm.ts';
import { VmMeter } from './vm-meter.ts';

const CHECK_MS = 1000;
/** Sandboxes without a VM whose samples are kept. */
const MAX_LEFT = 1000;
/** Other work of the runner proceeds after so many VMs. */
const VMS_PER_TURN = 16;

export interface VmMetersOptions {
  /** The VMs now, by sandbox. */
  listVms: () => ReadonlyMap<string, MeteredVm>;
  findVm: (id: string) => MeteredVm | undefined;
  /** The traffic at the TAPs of these VM instances, by instance. */
  readTraffic: (units: readonly string[]) => ReadonlyMap<string, TapTraffic>;
  log: Logger;
}

export class VmMeters implements Disposable {
  readonly #options: VmMetersOptions;
  readonly #meters = new Map<string, VmMeter>();
  readonly #timer: NodeJS.Timeout;
  #checks = 0;

  constructor(options: VmMetersOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.#check(), CHECK_MS);
    this.#timer.unref();
  }

  /** Usage of a sandbox's VM now and in the last hour. Throws `not_found` if nothing is known of it. */
  async read(id: string, query: VmMetricsQuery): Promise<VmMetrics> {
    const vm = this.#options.findVm(id);
    const meter = vm === undefined ? this.#meters.get(id) : this.#meterOf(id);
    if (meter === undefined) throw new AppError('not_found', `there is no VM ${id}`);
    const since_ms = Math.max(query.since_ms, Date.now() - METRICS_KEPT_S * 1000);
    const readTraffic = ({ unit }: MeteredVm): TapTraffic | undefined =>
      this.#options.readTraffic([unit]).get(unit);
    return meter.read(vm, { ...query, since_ms }, readTraffic);
  }

  #check(): Promise<void> {
    this.#checks += 1;
    return this.sample({ onlyNew: (this.#checks * CHECK_MS) % (METRICS_SAMPLE_S * 1000) !== 0 });
  }

  /** Samples all VMs, or those without a sample. A VM that has not answered the last time is left out. Never rejects. */
  async sample({ onlyNew = false } = {}): Promise<void> {
    try {
      const vms = this.#options.listVms();
      if (!onlyNew) this.#drop(vms);
      const isDue = ([id, vm]: readonly [string, MeteredVm]): boolean =>
        vm.isUp && !(onlyNew && this.#meters.get(id)?.hasSampled(vm) === true);
      await this.#sampleAll([...vms].filter(isDue));
    } catch (error) {
      this.#options.log.warn({ err: error }, 'VMs were not measured');
    }
  }

  async #sampleAll(vms: readonly (readonly [id: string, vm: MeteredVm])[]): Promise<void> {
    if (vms.length === 0) return;
    const { readTraffic, log } = this.#options;
    const traffic = readTraffic(vms.map(([, { unit }]) => unit));
    const samples: Promise<void>[] = [];
    for (const [id, vm] of vms) {
      const sample = this.#meterOf(id).sample({ vm, traffic: traffic.get(vm.unit) });
      samples.push(
        sample.catch((error: unknown) => log.warn({ err: error, vm: id }, 'a VM was not measured')),
      );
      if (samples.length % VMS_PER_TURN === 0) await nextTurn();
    }
    await Promise.all(samples);
  }

  #meterOf(id: string): VmMeter {
    const meter = this.#meters.get(id) ?? new VmMeter();
    this.#meters.set(id, meter);
    return meter;
  }

  /** Drops the samples of sandboxes that have ended, that are hibernated for an hour, or that are too many. */
  #drop(vms: ReadonlyMap<string, MeteredVm>): void {
    const oldest = Date.now() - METRICS_KEPT_S * 1000;
    const left = [...this.#meters]
      .filter(([id]) => !vms.has(id))
      .map(([id, meter]) => ({ id, lastAtMs: meter.lastAtMs, isAlive: meter.leave() }))
      .toSorted((a, b) => b.lastAtMs - a.lastAtMs);
    for (const [index, { id, isAlive, lastAtMs }] of left.entries())
      if (!isAlive || lastAtMs < oldest || index >= MAX_LEFT) this.#meters.delete(id);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
