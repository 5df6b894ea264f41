import { run } from '../setup/run-command.mjs';

const TRIAL_TIMEOUT_MS = 10_000;
const WRAPPER = ['unshare', '--net', '--', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];

/**
 * Words to put before a command so that it runs in a network namespace with nothing but its own loopback: tests
 * that need no network cannot harm the machine's. None where that is not possible, as for an ordinary user.
 * @returns {Promise<string[]>}
 */
export async function findNetworkWrapper() {
  const [command = '', ...args] = [...WRAPPER, 'true'];
  const trial = await run(command, args, {
    step: 'making a network namespace',
    timeoutMs: TRIAL_TIMEOUT_MS,
    allowFailure: true,
  }).catch(() => undefined);
  if (trial?.exitCode === 0) return WRAPPER;
  process.stdout.write("no network namespace can be made here: these tests run in the machine's\n");
  return [];
}
