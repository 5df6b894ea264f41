/**
 * Chooses the accelerator of new VMs, and switches to KVM while the runner runs if KVM starts to work.
 *
 *   mode   at the start                                         while it runs
 *   auto   KVM works            ─► kvm                          nothing
 *          absent or refused    ─► tcg, at once                 KVM is tried again; when it works ─► kvm
 *          unanswered in time   ─► tcg; the wait is paid once   the same
 *                                  in each boot of the host
 *   kvm    KVM works            ─► kvm; else the start fails    nothing
 *   tcg    ─► tcg, KVM is never tried                           nothing
 *
 * The start also fails if KVM is used and guests cannot have the configured CPU.
 *
 * A change applies to VMs that boot after it. Running VMs, and VMs restored from saved state, keep the accelerator that
 * they were booted with: state saved under one accelerator does not load under the other.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Accelerator } from '../../lib/protocol/runner-protocol.ts';
import { findMissing, type Cpu } from '../vm/cpu.ts';
import type { KvmCpus } from './boot-with-kvm.ts';
import { tryKvm, type KvmFinding, type KvmProbe } from './kvm-probe.ts';
import type { Known, KvmRecord } from './kvm-record.ts';

export type AcceleratorMode = 'auto' | 'kvm' | 'tcg';

/** A KVM guest answers in half a second, or in some seconds on a host whose page cache is empty. */
const PATIENCE_MS: Record<'auto' | 'kvm', number> = { auto: 10_000, kvm: 60_000 };
const BACKGROUND_TIMEOUT_MS = 30_000;
/** The pauses grow because a guest that hangs uses a CPU until its timeout. */
const FIRST_PAUSE_MS = 30_000;
const LONGEST_PAUSE_MS = 3_600_000;
/** Checking for the device costs nothing. */
const ABSENT_PAUSE_MS = 60_000;

export interface AcceleratorChoice {
  accelerator: Accelerator;
  /** The reason for the choice, for an operator. */
  reason: string;
  /** Set under KVM only. */
  cpus?: KvmCpus;
}

export interface AcceleratorsOptions {
  mode: AcceleratorMode;
  probe: KvmProbe;
  record: KvmRecord;
  log: Logger;
  /** Waits between attempts. Rejects when the signal aborts. */
  pause?: (milliseconds: number, signal: AbortSignal) => Promise<unknown>;
}

export class Accelerators implements AsyncDisposable {
  readonly #options: AcceleratorsOptions;
  readonly #stop = new AbortController();
  #choice: AcceleratorChoice;
  #watching: Promise<void> = Promise.resolve();

  private constructor(options: AcceleratorsOptions, choice: AcceleratorChoice) {
    this.#options = options;
    this.#choice = choice;
  }

  /** Throws `invalid_request` if the mode is kvm and KVM cannot be used, or guests cannot have the configured CPU. */
  static async open(options: AcceleratorsOptions): Promise<Accelerators> {
    const { mode } = options;
    if (mode === 'tcg')
      return new Accelerators(options, { accelerator: 'tcg', reason: 'COPPICE_ACCELERATOR=tcg' });
    const finding = await findAtStart(options, mode);
    if (finding.outcome === 'unfit') throw refuseCpu(finding.reason);
    if (mode === 'kvm' && finding.outcome !== 'works') throw refuseStart(finding.reason);
    return new Accelerators(options, choose(finding));
  }

  /** The accelerator of VMs that are booted now. */
  get current(): AcceleratorChoice {
    return this.#choice;
  }

  /**
   * Returns why VMs of this accelerator cannot be started now, or undefined if they can. Emulated VMs can start unless
   * the mode is kvm.
   */
  findRefusal(accelerator: Accelerator): string | undefined {
    const { mode } = this.#options;
    if (accelerator === 'tcg')
      return mode === 'kvm' ? 'this server allows kvm only (COPPICE_ACCELERATOR=kvm)' : undefined;
    const { accelerator: present, reason } = this.#choice;
    return present === 'kvm' ? undefined : `this machine uses ${present}: ${reason}`;
  }

  /**
   * Returns the features of `cpu` that guests of this host cannot have. Under emulation the host's features are unknown
   * and the list is empty.
   */
  findMissing(cpu: Cpu): string[] {
    const { cpus } = this.#choice;
    return cpus === undefined ? [] : findMissing(cpu, cpus.host);
  }

  /**
   * Retries KVM periodically until it works, then calls `onChange`. Does nothing unless the mode is auto and KVM is
   * unused. Disposing this object stops the retries.
   */
  watch(onChange: (choice: AcceleratorChoice) => void): void {
    if (this.#options.mode !== 'auto' || this.#choice.accelerator === 'kvm') return;
    this.#watching = this.#tryUntilItWorks(onChange).catch((error: unknown) => {
      if (!this.#stop.signal.aborted)
        this.#options.log.error({ err: error }, 'KVM is not retried until the next start');
    });
  }

  async #tryUntilItWorks(onChange: (choice: AcceleratorChoice) => void): Promise<void> {
    const { probe, log, pause = sleep } = this.#options;
    const { signal } = this.#stop;
    let bootPauseMs = FIRST_PAUSE_MS;
    let pauseMs = FIRST_PAUSE_MS;
    for (;;) {
      await pause(pauseMs, signal);
      const finding = await tryKvm(probe, BACKGROUND_TIMEOUT_MS, signal);
      const former = this.#choice;
      this.#choice = choose(finding);
      if (this.#choice.reason !== former.reason) log.info({ kvm: finding }, 'KVM was tried again');
      if (finding.outcome === 'works') {
        remember(this.#options, { kvm: 'works', cpus: finding.cpus });
        onChange(this.#choice);
        return;
      }
      // A device that appears after an absence is new: try a boot soon.
      bootPauseMs =
        finding.outcome === 'absent' ? FIRST_PAUSE_MS : Math.min(bootPauseMs * 2, LONGEST_PAUSE_MS);
      pauseMs = finding.outcome === 'absent' ? ABSENT_PAUSE_MS : bootPauseMs;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }
}

async function findAtStart(options: AcceleratorsOptions, mode: 'auto' | 'kvm'): Promise<KvmFinding> {
  const { probe, record, log } = options;
  const known = record.find();
  if (probe.findObstacle() === undefined) {
    if (known?.kvm === 'works') return { outcome: 'works', cpus: known.cpus };
    if (known?.kvm === 'unanswered' && mode === 'auto')
      return { outcome: 'unanswered', reason: 'KVM has not answered since the host booted' };
  }
  const finding = await tryKvm(probe, PATIENCE_MS[mode]);
  log.info({ kvm: finding }, 'KVM was tried');
  if (finding.outcome === 'works') remember(options, { kvm: 'works', cpus: finding.cpus });
  if (finding.outcome === 'unanswered') remember(options, { kvm: 'unanswered' });
  return finding;
}

/** If the record cannot be written, the next start probes again. */
function remember({ record, log }: AcceleratorsOptions, known: Known): void {
  try {
    record.write(known);
  } catch (error) {
    log.warn({ err: error }, 'could not record whether KVM works');
  }
}

function choose(finding: KvmFinding): AcceleratorChoice {
  if (finding.outcome === 'works')
    return { accelerator: 'kvm', reason: 'a kernel booted with KVM', cpus: finding.cpus };
  const { outcome, reason } = finding;
  const again = outcome === 'unanswered' ? '; it is tried again in the background' : '';
  const setting = outcome === 'unfit' ? 'COPPICE_CPU ' : '';
  return { accelerator: 'tcg', reason: `${setting}${reason}${again}` };
}

function refuseStart(reason: string): AppError {
  return new AppError('invalid_request', `acceleratorMode: is kvm, but KVM cannot be used: ${reason}`);
}

function refuseCpu(reason: string): AppError {
  return new AppError('invalid_request', `cpuModel: ${reason}; set cpuModel to a lower level, or to host`);
}

function sleep(milliseconds: number, signal: AbortSignal): Promise<unknown> {
  return delay(milliseconds, undefined, { signal, ref: false });
}
