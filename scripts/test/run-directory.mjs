import { rmSync } from 'node:fs';
import { chmod, mkdtemp } from 'node:fs/promises';

/**
 * Calls `run` with a directory in COPPICE_TEST_RUN for what all processes of its tests share.
 * @template T
 * @param {() => Promise<T>} run
 * @returns {Promise<T>}
 */
export async function withRunDirectory(run) {
  const directory = await mkdtemp('/var/tmp/coppice-test-run-');
  // PostgreSQL and the VMs, under accounts of their own, pass through.
  await chmod(directory, 0o711);
  process.env['COPPICE_TEST_RUN'] = directory;
  const remove = () => rmSync(directory, { recursive: true, force: true });
  // A run that a signal ends does not come back from `run`.
  process.once('exit', remove);
  try {
    return await run();
  } finally {
    delete process.env['COPPICE_TEST_RUN'];
    process.off('exit', remove);
    remove();
  }
}
