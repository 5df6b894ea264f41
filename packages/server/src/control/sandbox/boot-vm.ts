/** Making a VM while the runner may restart in the middle of it. */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { CreateVm, VmInfo } from '../../lib/runner-protocol.ts';
import type { RunnerClient } from '../placement/runner-client.ts';

const RETRY_DELAY_MS = 250;

export interface BootOptions {
  runner: RunnerClient;
  id: string;
  vm: CreateVm;
  /** Whole create. */
  deadlineMs: number;
  /** How long the runner may be away. */
  outageDeadlineMs: number;
  log: Logger;
}

/**
 * Creates the VM. The runner's create goes on when the connection breaks, and is joined by asking again with the same
 * id, so an outage shorter than `outageDeadlineMs` is not seen by the caller.
 */
export async function bootVm(options: BootOptions): Promise<VmInfo> {
  const end = performance.now() + options.deadlineMs;
  let outageEnd: number | undefined;
  for (;;) {
    const attemptedAt = performance.now();
    try {
      return await options.runner.createVm(options.id, options.vm, Math.max(1, end - attemptedAt));
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'unavailable') throw error;
      // An attempt that lasted had reached the runner: the outage begins with its end.
      if (performance.now() - attemptedAt > 2 * RETRY_DELAY_MS) outageEnd = undefined;
      outageEnd ??= performance.now() + options.outageDeadlineMs;
      if (performance.now() > Math.min(end, outageEnd)) throw error;
      options.log.warn({ sandbox_id: options.id }, 'the runner went away during a create; asking again');
      await delay(RETRY_DELAY_MS);
    }
  }
}
