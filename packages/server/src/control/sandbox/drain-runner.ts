import type { Logger } from 'pino';
import type { SandboxDriver } from './live/sandbox-driver.ts';

/** Each writes the memory of a VM to the disk. */
const MAX_AT_ONCE = 2;

/**
 * Hibernates the sandboxes that hibernate by themselves, unless they are in use; a later call takes those. The others run until
 * they end or are ended.
 */
export async function drainRunner(sandboxes: readonly SandboxDriver[], log: Logger): Promise<void> {
  const waiting = sandboxes.filter(
    ({ row, isBusy, live }) => row.status === 'running' && row.auto_hibernate && !isBusy && !live.isInUse,
  );
  const worker = async (): Promise<void> => {
    for (let driver = waiting.pop(); driver !== undefined; driver = waiting.pop()) {
      const { id } = driver.row;
      await driver.hibernation.hibernate().catch((error: unknown) => {
        log.warn({ err: error, sandbox_id: id }, 'a sandbox could not be hibernated; it is tried again');
      });
    }
  };
  await Promise.all(Array.from({ length: MAX_AT_ONCE }, worker));
}
