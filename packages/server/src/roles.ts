/** The two roles as processes: start, say ready to the supervisor, wait to be asked to stop, stop. */
import { chmodSync, chownSync, mkdirSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { dirname } from 'node:path';
import type { Logger } from 'pino';
import { ConfigError, type Config } from './config.ts';
import { startControl } from './control/control.ts';
import { preloadServer } from './control/http/preload.ts';
import { shutdownRequested } from './lib/shutdown-signal.ts';
import { TlsReceiver } from './lib/tls/tls-handover.ts';
import { readTlsPair } from './lib/tls/tls-pair.ts';
import { startRunner } from './runner/runner.ts';

/** What a role tells the supervisor once it serves. */
export type RoleMessage =
  | { type: 'runner-ready'; accelerator: string; reason: string; networkAbsence?: string }
  | { type: 'control-ready'; address: string; apiKey?: string };

function tell(message: RoleMessage): void {
  process.send?.(message);
}

export async function runRunnerRole(config: Config, log: Logger): Promise<void> {
  const asked = shutdownRequested();
  const runner = await startRunner(config.runner, log);
  if (process.getuid?.() === 0) allowControl(config.runner.socketPath, findUser(config.user));
  tell({
    type: 'runner-ready',
    accelerator: runner.accelerator.accelerator,
    reason: runner.accelerator.reason,
    ...(runner.networkAbsence === undefined ? {} : { networkAbsence: runner.networkAbsence }),
  });
  log.info({ reason: await asked }, 'runner stops; its VMs run on');
  await runner[Symbol.asyncDispose]();
  process.disconnect?.();
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
  const control = await startControl(config.control, log, tls);
  receiver.follow((pair) => control.setTls(pair));
  const apiKey = control.bootstrap?.apiKey;
  tell({ type: 'control-ready', address: control.address, ...(apiKey === undefined ? {} : { apiKey }) });
  const reason = await Promise.race([asked, control.lost]);
  log.info({ reason: String(reason) }, 'control stops');
  if (reason instanceof Error) process.exitCode = 1;
  await control[Symbol.asyncDispose]();
  process.disconnect?.();
}

interface Account {
  uid: number;
  gid: number;
}

/** The account that set-up made. */
function findUser(name: string): Account {
  try {
    const fields = execFileSync('getent', ['passwd', name], { encoding: 'utf8' }).split(':');
    return { uid: Number(fields[2]), gid: Number(fields[3]) };
  } catch {
    throw new ConfigError(
      `there is no user "${name}" on this machine: run "npm run setup", or set COPPICE_USER`,
    );
  }
}

function allowControl(socketPath: string, account: Account): void {
  chownSync(socketPath, account.uid, account.gid);
}

/** Control and its PostgreSQL need no privilege once their directories are theirs. All modules are loaded by now. */
function becomeUnprivileged(config: Config): void {
  const account = findUser(config.user);
  for (const directory of [config.control.dataDir, config.control.runDir]) {
    mkdirSync(dirname(directory), { recursive: true, mode: 0o711 });
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    chmodSync(directory, 0o700);
    chownSync(directory, account.uid, account.gid);
  }
  process.setgroups?.([]);
  process.setgid?.(account.gid);
  process.setuid?.(account.uid);
}
