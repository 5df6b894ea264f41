/**
 * The life of a sandbox as its driver records it, on a host whose clock may be set and that may reboot. It also keeps,
 * in the slowest and plainest way, when the sandbox truly ran.
 */
import type { HostMoment } from '../../lib/host-clock.ts';
import { toBootMoment, type CaptureInfo } from '../../lib/protocol/runner-protocol.ts';
import type { SandboxRow, SandboxUpdate } from '../sandbox/record/sandbox-tables.ts';
import { buildEnding } from '../sandbox/record/ending.ts';
import { buildHibernated, buildResumed } from '../sandbox/record/hibernation.ts';

export type LifeStep =
  | { do: 'run'; ms: number }
  /** Hibernated, and resumed after that time; over a reboot of the host if `boots`. */
  | { do: 'sleep'; ms: number; boots: boolean }
  /** Hibernated while control was away; after that time, control finds out and resumes it. */
  | { do: 'sleep unseen'; ms: number }
  | { do: 'set the clock'; ms: number };

export interface TrueRun {
  /** Unix milliseconds by the clock of the create. */
  from: number;
  to: number;
}

/** Records a change, and returns the changed row. */
export type WriteDown = (row: SandboxRow, change: SandboxUpdate) => Promise<SandboxRow>;

const CAPTURE: CaptureInfo = {
  id: `hib${'a'.repeat(20)}`,
  kind: 'hibernation',
  vm_id: 'run',
  image: 'coppice/base:1',
  vcpus: 1,
  mem_mib: 1024,
  disk_mib: 1024,
  size_bytes: 1,
  created_at: new Date(0).toISOString(),
  pause_ms: 1,
  bound_to: {},
  usage: { cpu_ms: 1, mem_peak_bytes: 1 },
};

function saveAt(now: HostMoment): CaptureInfo {
  return {
    ...CAPTURE,
    created_at: new Date(now.wallMs).toISOString(),
    created_on_boot: toBootMoment(now),
  };
}

export class SimulatedLife {
  row: SandboxRow;
  readonly runs: TrueRun[] = [];
  readonly #write: WriteDown;
  #boot = 0;
  #bootMs: number;
  #wallMs: number;
  /** True time since the create. */
  #ageMs = 0;

  constructor(row: SandboxRow, write: WriteDown) {
    this.row = row;
    this.#write = write;
    this.#bootMs = row.created_boot_ms ?? 0;
    this.#wallMs = row.created_at;
  }

  static bootId(boot: number): string {
    return `simulated-${boot}`;
  }

  get now(): HostMoment {
    return { bootId: SimulatedLife.bootId(this.#boot), bootMs: this.#bootMs, wallMs: this.#wallMs };
  }

  async live(step: LifeStep): Promise<void> {
    switch (step.do) {
      case 'run':
        this.#run(step.ms);
        return;
      case 'sleep':
        await this.hibernate();
        if (step.boots) this.#sleepOverBoot(step.ms);
        else this.#pass(step.ms);
        await this.#change(buildResumed(this.row, this.now));
        return;
      case 'sleep unseen':
        await this.#sleepUnseen(step.ms);
        return;
      case 'set the clock':
        this.#wallMs = Math.max(0, this.#wallMs + step.ms);
        return;
      default:
        step satisfies never;
    }
  }

  hibernate(): Promise<void> {
    return this.#change(buildHibernated(this.row, saveAt(this.now), this.now));
  }

  destroy(): Promise<void> {
    return this.#change(buildEnding(this.row, { event: 'removed', reason: 'requested', now: this.now }));
  }

  /** Loses the VM `ms` after it was last seen. That time is not billed. */
  async lose(ms: number): Promise<void> {
    this.#seen();
    this.#pass(ms);
    await this.#change(buildEnding(this.row, { event: 'lost', reason: 'vm_lost', now: this.now }));
  }

  #run(ms: number): void {
    const from = this.row.created_at + this.#ageMs;
    if (ms > 0) this.runs.push({ from, to: from + ms });
    this.#pass(ms);
  }

  async #sleepUnseen(ms: number): Promise<void> {
    this.#seen();
    const capture = saveAt(this.now);
    this.#pass(ms);
    await this.#change(buildHibernated(this.row, capture, this.now));
    await this.#change(buildResumed(this.row, this.now));
  }

  #seen(): void {
    this.row = { ...this.row, last_seen_at: this.#wallMs, last_seen_boot_ms: this.#bootMs };
  }

  #pass(ms: number): void {
    this.#ageMs += ms;
    this.#bootMs += ms;
    this.#wallMs += ms;
  }

  /** Only the wall clock can tell how long that was. It cannot have been less than zero. */
  #sleepOverBoot(ms: number): void {
    this.#boot += 1;
    this.#bootMs = 5000;
    this.#wallMs += ms;
    this.#ageMs = Math.max(this.#ageMs, this.#wallMs - this.row.created_at);
  }

  async #change(change: SandboxUpdate): Promise<void> {
    this.row = await this.#write(this.row, change);
  }
}
