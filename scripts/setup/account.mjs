import { readFile } from 'node:fs/promises';
import { isRoot, readSetting } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';

const TIMEOUT_MS = 60_000;

/** @returns {string} the account that the service's control process and its PostgreSQL run as */
export function accountName() {
  return readSetting('COPPICE_USER', 'coppice');
}

/** @returns {Promise<boolean>} */
export async function accountExists() {
  const name = accountName();
  // The file first: getent costs a process, and nearly every machine has the account there.
  if ((await readFile('/etc/passwd', 'utf8')).split('\n').some((line) => line.startsWith(`${name}:`)))
    return true;
  const found = await run('getent', ['passwd', name], {
    step: `looking up the account ${name}`,
    timeoutMs: TIMEOUT_MS,
    allowFailure: true,
  });
  return found.exitCode === 0;
}

/** An ordinary user's service runs as that user alone. */
export async function ensureAccount() {
  if (!isRoot() || (await accountExists())) return;
  const name = accountName();
  say(`making the system account ${name}`);
  await run(
    'useradd',
    [
      '--system',
      '--user-group',
      '--no-create-home',
      '--home-dir',
      '/nonexistent',
      '--shell',
      '/usr/sbin/nologin',
      name,
    ],
    {
      step: `making the system account ${name}`,
      timeoutMs: TIMEOUT_MS,
    },
  );
}
