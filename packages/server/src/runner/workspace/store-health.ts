/** Asks the block server whether the object store answers. */
import { ServerStatus } from './block-requests.ts';
import { BlockServerError } from './block-server.ts';
import type { DiskServer } from './disk-moments.ts';

const STATUS_TIMEOUT_MS = 2000;
/** A change of the VMM's graph waits for all reads in progress, and the guest with it. */
const LONG_READ_MS = 500;

/** Returns the failure of the object store if nothing has succeeded since. */
export async function findStoreFailure(server: DiskServer): Promise<string | null> {
  const status = await server({ op: 'status' }, ServerStatus, { timeoutMs: STATUS_TIMEOUT_MS });
  const { store_ok_ms: okMs, store_error_ms: errorMs, store_error: message } = status;
  return errorMs !== null && (okMs === null || errorMs < okMs) ? message : null;
}

/** Throws `unavailable` while a read of the disk waits for the object store. */
export async function assertCalm(server: DiskServer): Promise<void> {
  const status = await server({ op: 'status' }, ServerStatus, { timeoutMs: STATUS_TIMEOUT_MS });
  if (status.oldest_read_ms < LONG_READ_MS) return;
  throw new BlockServerError('unavailable', 'the object store does not answer reads of a disk');
}
