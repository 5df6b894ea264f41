/** The VM of one sandbox at its runner: made while the runner may restart in the middle of it, and removed. */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { VmEnd, VmInfo } from '../../lib/runner-protocol.ts';
import type { NewVm, RunnerClient } from '../placement/runner-client.ts';

const RETRY_DELAY_MS = 250;

export interface CreateDeadlines {
  /** Whole create. */
  createDeadlineMs: number;
  /** How long the runner may be away. */
  runnerOutageDeadlineMs: number;
}

export class SandboxVm {
  readonly #id: string;
  readonly #runner: RunnerClient;
  readonly #log: Logger;

  constructor(id: string, runner: RunnerClient, log: Logger) {
    this.#id = id;
    this.#runner = runner;
    this.#log = log;
  }

  /**
   * The runner's create goes on when the connection breaks, and is joined by asking again with the same id: a short
   * outage is not seen by the caller.
   */
  async create(vm: NewVm, deadlines: CreateDeadlines): Promise<VmInfo> {
    const end = performance.now() + deadlines.createDeadlineMs;
    let outageEnd: number | undefined;
    for (;;) {
      const attemptedAt = performance.now();
      try {
        return await this.#runner.createVm(this.#id, vm, Math.max(1, end - attemptedAt));
      } catch (error) {
        if (!(error instanceof AppError) || error.code !== 'unavailable') throw error;
        // An attempt that lasted had reached the runner: the outage begins with its end.
        if (performance.now() - attemptedAt > 2 * RETRY_DELAY_MS) outageEnd = undefined;
        outageEnd ??= performance.now() + deadlines.runnerOutageDeadlineMs;
        if (performance.now() > Math.min(end, outageEnd)) throw error;
        this.#log.warn('the runner went away during a create; asking again');
        await delay(RETRY_DELAY_MS);
      }
    }
  }

  /** Undefined when the runner knows no such VM. */
  async remove(): Promise<VmEnd | undefined> {
    try {
      return await this.#runner.deleteVm(this.#id);
    } catch (error) {
      if (error instanceof AppError && error.code === 'not_found') return undefined;
      throw error;
    }
  }

  /** If it fails, the reconciler finds a VM without a live record and removes it. */
  removeLater(): void {
    this.remove().catch((error: unknown) => this.#log.warn({ err: error }, 'a VM is left to the reconciler'));
  }
}
