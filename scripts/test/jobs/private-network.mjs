import { run } from '../../setup/run-command.mjs';

const TRIAL_TIMEOUT_MS = 10_000;
const UNSHARE_ARGUMENTS = ['--net', '--', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];

/**
 * Returns words to put before a command so that it runs in a network namespace that has only its own loopback: tests
 * that need no network cannot harm the machine's. Returns no words where that is not possible, as for an ordinary user.
 * @returns {Promise<string[]>}
 */
export async function findNetworkWrapper() {
  const trial = await run('unshare', [...UNSHARE_ARGUMENTS, 'true'], {
    step: 'making a network namespace',
    timeoutMs: TRIAL_TIMEOUT_MS,
    allowFailure: true,
  }).catch(() => undefined);
  if (trial?.exitCode === 0) return ['unshare', ...UNSHARE_ARGUMENTS];
  process.stdout.write("no network namespace can be made here: these tests run in the machine's own\n");
  return [];
}
