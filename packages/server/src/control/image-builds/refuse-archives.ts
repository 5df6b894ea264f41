/** Refuses an ADD of an archive: Docker would unpack it, and a file that stays packed would be found much later. */
import { open } from 'node:fs/promises';
import { AppError } from '@coppice/contract';
import { LayerError } from '../../lib/tar/layer-error.ts';
import { isZeroBlock, parseTarHeader, TAR_BLOCK_BYTES } from '../../lib/tar/tar-format.ts';
import type { ContextFiles } from './context-index.ts';
import { Pacer } from './pacer.ts';
import type { Selection } from './select-files.ts';

/** How compressed files begin, as byte strings. */
const COMPRESSED: Readonly<Record<string, string>> = {
  gzip: '\u001F\u008B\u0008',
  bzip2: 'BZh',
  xz: '\u00FD7zXZ\0',
  zstd: '\u0028\u00B5\u002F\u00FD',
};

/** Looks at the files that were named themselves; Docker leaves those in a directory packed. Throws `build_failed`. */
export async function refuseArchives(
  { path, index }: ContextFiles,
  { named }: Pick<Selection, 'named'>,
  signal: AbortSignal,
): Promise<void> {
  if (named.length === 0) return;
  const pacer = new Pacer(signal);
  await using file = await open(path, 'r');
  const block = Buffer.alloc(TAR_BLOCK_BYTES);
  for (const number of named) {
    await pacer.pause();
    const { dataOffset, sizeBytes } = index.entry(number);
    const wanted = Math.min(sizeBytes, TAR_BLOCK_BYTES);
    const { bytesRead } = await file.read(block, 0, wanted, dataOffset);
    const format = findFormat(block.subarray(0, bytesRead));
    if (format === undefined) continue;
    const name = JSON.stringify(Buffer.from(index.path(number), 'latin1').toString('utf8').slice(0, 300));
    throw new AppError(
      'build_failed',
      `ADD does not unpack ${name}, which is a ${format} file; use COPY, and RUN tar to unpack it`,
    );
  }
}

function findFormat(start: Buffer): string | undefined {
  const text = start.toString('latin1');
  const compressed = Object.entries(COMPRESSED).find(([, magic]) => text.startsWith(magic));
  if (compressed !== undefined) return compressed[0];
  return isTar(start) ? 'tar' : undefined;
}

function isTar(start: Buffer): boolean {
  if (start.length < TAR_BLOCK_BYTES || isZeroBlock(start)) return false;
  try {
    parseTarHeader(start);
    return true;
  } catch (error) {
    if (error instanceof LayerError) return false;
    throw error;
  }
}
