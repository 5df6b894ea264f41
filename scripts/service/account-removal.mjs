import { accountName } from '../setup/account.mjs';
import { run } from '../setup/run-command.mjs';

const TIMEOUT_MS = 60_000;

/**
 * Returns whether set-up made this account: a system account without home and shell. Any other account existed before.
 * @param {string} entry line of passwd(5)
 */
export function isMadeBySetUp(entry) {
  const [, , uid, , , home, shell] = entry.trim().split(':');
  return Number(uid) > 0 && Number(uid) < 1000 && home === '/nonexistent' && shell === '/usr/sbin/nologin';
}

/** @param {import('./removal-report.mjs').RemovalReport} report */
export async function removeAccount(report) {
  const name = accountName();
  const options = { timeoutMs: TIMEOUT_MS, allowFailure: true };
  const found = await run('getent', ['passwd', name], { ...options, step: `looking up the account ${name}` });
  if (found.exitCode !== 0) return;
  if (!isMadeBySetUp(found.stdout)) {
    report.leave(`account ${name}: set-up did not make it`);
    return;
  }
  const removed = await run('userdel', [name], { ...options, step: `removing the account ${name}` });
  if (removed.exitCode === 0) report.remove(`account ${name}`);
  else report.leave(`account ${name}: ${removed.output.trim()}`);
}
