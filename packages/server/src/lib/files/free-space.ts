import { statfs } from 'node:fs/promises';

/** Bytes that users other than root can still write to the file system of a directory. */
export async function findFreeBytes(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}
