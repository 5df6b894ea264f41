import { readFile } from 'node:fs/promises';
import { isRoot, readSetting } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';

const TIMEOUT_MS = 60_000;

/** @returns {string} name of the account that control and its PostgreSQL run as */
export function accountName() {
  return readSetting('COPPICE_USER', 'coppice');
}

/** @returns {Promise<boolean>} */
export async function accountExists() {
  const name = accountName();
  // Read the file first: getent costs a process, and on nearly every machine the account is in the file.
  if ((await readFile('/etc/passwd', 'utf8')).split('\n').some((line) => line.startsWith(`${name}:`)))
    return true;
  const found = await run('getent', ['passwd', name], {
    step: `looking up the account ${name}`,
    timeoutMs: TIMEOUT_MS,
    allowFailure: true,
  });
  return found.exitCode === 0;
}

/** Creates the account if it is missing. Does nothing without root: an ordinary user's service runs as that user. */
export async function ensureAccount() {
  if (!isRoot() || (await accountExists())) return;
  const name = accountName();
  say(`creating the system account ${name}`);
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
      step: `creating the system account ${name}`,
      timeoutMs: TIMEOUT_MS,
    },
  );
}
