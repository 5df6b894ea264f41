/** The runner as a process: starts, reports ready to the supervisor, waits for a stop request, and stops. */
import { chownSync } from 'node:fs';
import type { Logger } from 'pino';
import { announce } from './announce.ts';
import { takeStoreVariables, type Config } from './config/config.ts';
import { listMissingLimits } from './lib/missing-limits.ts';
import type { CgroupStatus } from './lib/protocol/runner-protocol.ts';
import { shutdownRequested } from './lib/process/shutdown-signal.ts';
import { startRunner } from './runner/runner.ts';
import type { Account } from './lib/process/become.ts';
import { findServiceAccount } from './service-account.ts';

export async function runRunnerRole(config: Config, log: Logger): Promise<void> {
  const asked = shutdownRequested();
  const runnerConfig = { ...config.runner, storeVariables: takeStoreVariables(config) };
  const runner = await startRunner(runnerConfig, log, ({ accelerator, reason }) =>
    announce({ type: 'accelerator-changed', accelerator, reason }),
  );
  if (process.getuid?.() === 0) allowControl(config.runner.socketPath, findServiceAccount(config.user));
  const { accelerator, reason } = runner.accelerator;
  announce({
    type: 'runner-ready',
    accelerator,
    reason,
    ...(runner.networkAbsence === undefined ? {} : { networkAbsence: runner.networkAbsence }),
    ...(process.getuid?.() === 0 ? { ranges: runner.ranges } : {}),
    ...describeMissingLimits(runner.cgroups),
  });
  log.info({ reason: await asked }, 'runner stops; its VMs keep running');
  await runner[Symbol.asyncDispose]();
  process.disconnect?.();
}

function describeMissingLimits(status: CgroupStatus): { missingLimits?: string } {
  const missing = listMissingLimits(status);
  return missing.length === 0 ? {} : { missingLimits: `${missing.join(', ')} (${status.reason})` };
}

function allowControl(socketPath: string, account: Account): void {
  chownSync(socketPath, account.uid, account.gid);
}
