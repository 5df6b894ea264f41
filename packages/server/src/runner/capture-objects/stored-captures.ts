/** Requests to the block server about stored files: those of a capture, or of an image. */
import { z } from 'zod';
import { BlockServerError, type BlockServer } from '../workspace/block-server.ts';
import { StoredFile } from './capture-files.ts';

/** The answer to `find_capture`. */
const Found = z.object({
  /** The runner's notes, as they were stored. */
  about: z.string(),
  files: z.array(StoredFile),
  stored_bytes: z.int().nonnegative(),
  /** Bytes that the files take here, without their holes. */
  data_bytes: z.int().nonnegative(),
});
export type Found = z.infer<typeof Found>;

/** The answers of `blocks store` and `blocks fetch`. */
export const Sent = z.object({ stored_bytes: z.int(), sent_bytes: z.int() });
export const Fetched = z.object({ fetched_bytes: z.int(), same: z.array(z.string()) });

type Server = Pick<BlockServer, 'ask'>;

/** Returns undefined if the organization has none with the id. */
export async function findStored(
  server: Server,
  org: string,
  id: string,
  options: { timeoutMs?: number } = {},
): Promise<Found | undefined> {
  try {
    return await server.ask({ op: 'find_capture', org, capture: id }, Found, options);
  } catch (error) {
    if (error instanceof BlockServerError && error.reason === 'no_capture') return undefined;
    throw error;
  }
}

/** Deletes it. Its chunks go in a later collection. It need not exist. */
export async function deleteStored(server: Server, org: string, id: string): Promise<void> {
  await server.ask({ op: 'delete_capture', org, capture: id }, z.literal(true));
}

export function isDamaged(error: unknown): error is BlockServerError {
  return error instanceof BlockServerError && error.reason === 'corrupt';
}
