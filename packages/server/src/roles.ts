/** The two roles as processes: start, say ready to the supervisor, wait to be asked to stop, stop. */
import { chownSync } from 'node:fs';
import type { Logger } from 'pino';
import type { Config } from './config/config.ts';
import type { Bootstrapped } from './control/auth/bootstrapped.ts';
import { startControl } from './control/control.ts';
import { preloadServer } from './control/http/preload.ts';
import { isJournal } from './lib/journal.ts';
import { listMissingLimits } from './lib/missing-limits.ts';
import type { CgroupStatus } from './lib/runner-protocol.ts';
import { shutdownRequested } from './lib/shutdown-signal.ts';
import { TlsReceiver } from './lib/tls/tls-handover.ts';
import { readTlsPair } from './lib/tls/tls-pair.ts';
import type { HostRanges } from './runner/host-ranges/host-ranges.ts';
import { startRunner } from './runner/runner.ts';
import { becomeUnprivileged, findServiceAccount, type ServiceAccount } from './service-account.ts';

/** What a role tells the supervisor once it serves. */
export type RoleMessage =
  | { type: 'accelerator-changed'; accelerator: string; reason: string }
  | {
      type: 'runner-ready';
      accelerator: string;
      reason: string;
      networkAbsence?: string;
      ranges?: HostRanges;
      /** Limits of sandboxes that are not in force, and why. */
      missingLimits?: string;
    }
  | { type: 'control-ready'; address: string; bootstrap: Bootstrapped };

const STDOUT = 1;

function tell(message: RoleMessage): void {
  process.send?.(message);
}

export async function runRunnerRole(config: Config, log: Logger): Promise<void> {
  const asked = shutdownRequested();
  const runner = await startRunner(config.runner, log, (choice) =>
    tell({ type: 'accelerator-changed', ...choice }),
  );
  if (process.getuid?.() === 0) allowControl(config.runner.socketPath, findServiceAccount(config.user));
  tell({
    type: 'runner-ready',
    ...runner.accelerator,
    ...(runner.networkAbsence === undefined ? {} : { networkAbsence: runner.networkAbsence }),
    ...(process.getuid?.() === 0 ? { ranges: runner.ranges } : {}),
    ...describeMissingLimits(runner.cgroups),
  });
  log.info({ reason: await asked }, 'runner stops; its VMs run on');
  await runner[Symbol.asyncDispose]();
  process.disconnect?.();
}

function describeMissingLimits(status: CgroupStatus): { missingLimits?: string } {
  const missing = listMissingLimits(status);
  return missing.length === 0 ? {} : { missingLimits: `${missing.join(', ')} (${status.reason})` };
}

export async function runControlRole(config: Config, log: Logger): Promise<void> {
  const asked = shutdownRequested();
  const receiver = new TlsReceiver(process);
  // Without a supervisor nobody hands it over, and after the next step its file is out of reach.
  const ownPair =
    config.tls === undefined || process.send !== undefined ? undefined : readTlsPair(config.tls);
  if (process.getuid?.() === 0) {
    await preloadServer(config.control.version);
    becomeUnprivileged(config);
  }
  const tls = config.tls === undefined ? undefined : (ownPair ?? (await receiver.first()));
  // Control's output is that of the supervisor, which shows key and invitation.
  const kept = isJournal(STDOUT) ? { bootstrapDir: config.control.dataDir } : {};
  const control = await startControl({ ...config.control, ...kept }, log, tls);
  receiver.follow((pair) => control.setTls(pair));
  tell({ type: 'control-ready', address: control.address, bootstrap: control.bootstrap });
  const reason = await Promise.race([asked, control.lost]);
  log.info({ reason: String(reason) }, 'control stops');
  if (reason instanceof Error) process.exitCode = 1;
  await control[Symbol.asyncDispose]();
  process.disconnect?.();
}

function allowControl(socketPath: string, account: ServiceAccount): void {
  chownSync(socketPath, account.uid, account.gid);
}
