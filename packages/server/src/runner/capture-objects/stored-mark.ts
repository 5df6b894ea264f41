/** The note in a capture's directory that the object store has the capture, so that the local copy may be evicted. */
import { join } from 'node:path';
import { writeDurablyLater } from '../../lib/files/durable-file.ts';
import { findFile } from '../../lib/files/find-file.ts';
import { z } from 'zod';

const MARK_NAME = 'stored.json';

export const StoredMark = z.object({ organization: z.string(), stored_bytes: z.int().nonnegative() });
export type StoredMark = z.infer<typeof StoredMark>;

export async function writeStoredMark(directory: string, mark: StoredMark): Promise<void> {
  await writeDurablyLater(join(directory, MARK_NAME), JSON.stringify(mark));
}

/** An unreadable mark is none: the capture is stored again, which sends nothing. */
export function findStoredMark(directory: string): StoredMark | undefined {
  const content = findFile(join(directory, MARK_NAME));
  if (content === undefined) return undefined;
  try {
    return StoredMark.parse(JSON.parse(content.toString('utf8')));
  } catch {
    return undefined;
  }
}
