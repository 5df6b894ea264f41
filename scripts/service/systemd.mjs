import { existsSync } from 'node:fs';
import { findExecutable } from '../setup/paths.mjs';
import { run } from '../setup/run-command.mjs';

/** Longer than TimeoutStopSec of the unit. */
const TIMEOUT_MS = 120_000;

/** @returns {boolean} whether systemd manages this machine: in a container it may be installed but not running */
export function isSystemdRunning() {
  return existsSync('/run/systemd/system') && findExecutable('systemctl') !== undefined;
}

/** @param {...string} args */
export async function systemctl(...args) {
  await run('systemctl', args, {
    step: `systemctl ${args.join(' ')}`,
    timeoutMs: TIMEOUT_MS,
    remedy: "journalctl -u 'coppice*' shows the log of the service",
  });
}
