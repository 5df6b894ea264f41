import { join } from 'node:path';
import { findFile } from '../../lib/files/find-file.ts';
import { writeDurably } from '../../lib/files/durable-file.ts';
import { newId } from '../../lib/new-id.ts';

/** Returns the id of a data directory of control, which is made once. One process at a time has its lock. */
export function openNodeId(dataDir: string): string {
  const path = join(dataDir, 'node-id');
  const found = findFile(path)?.toString('utf8');
  if (found !== undefined) return found;
  const id = newId('node');
  writeDurably(path, id);
  return id;
}
