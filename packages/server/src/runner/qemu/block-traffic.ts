/** Bytes that the guest has read and written, as QEMU counts them. An escaped guest can answer anything here. */
import { z } from 'zod';
import type { BlockTraffic } from '../vm/vmm.ts';
import type { QmpClient } from './qmp-client.ts';

const TIMEOUT_MS = 3000;

const Count = z.int().nonnegative();
const BlockStats = z
  .array(z.object({ qdev: z.string().optional(), stats: z.object({ rd_bytes: Count, wr_bytes: Count }) }))
  .max(64);

/** Adds up all devices: the image, the scratch disk and the persistent disk. */
export async function readBlockTraffic(qmp: QmpClient): Promise<BlockTraffic> {
  const stats = BlockStats.parse(await qmp.execute('query-blockstats', {}, TIMEOUT_MS));
  return stats.reduce(
    ({ readBytes, writtenBytes }, { stats: { rd_bytes, wr_bytes } }) => ({
      readBytes: Math.min(Number.MAX_SAFE_INTEGER, readBytes + rd_bytes),
      writtenBytes: Math.min(Number.MAX_SAFE_INTEGER, writtenBytes + wr_bytes),
    }),
    { readBytes: 0, writtenBytes: 0 },
  );
}
