import { rmSync } from 'node:fs';
import { chmod, mkdtemp } from 'node:fs/promises';

/**
 * Calls `run` with COPPICE_TEST_RUN set to a directory that all test processes share, and then removes the directory.
 * @template T
 * @param {() => Promise<T>} run
 * @returns {Promise<T>}
 */
export async function withRunDirectory(run) {
  const directory = await mkdtemp('/var/tmp/coppice-test-run-');
  // PostgreSQL and the VMs run under other accounts and must be able to pass through.
  await chmod(directory, 0o711);
  process.env['COPPICE_TEST_RUN'] = directory;
  const remove = () => rmSync(directory, { recursive: true, force: true });
  // After a signal, `run` does not return.
  process.once('exit', remove);
  try {
    return await run();
  } finally {
    delete process.env['COPPICE_TEST_RUN'];
    process.off('exit', remove);
    remove();
  }
}
