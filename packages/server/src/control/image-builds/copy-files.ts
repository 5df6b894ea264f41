/** Writes the files that COPY takes as an archive for the guest. */
import { open } from 'node:fs/promises';
import { PassThrough, type Readable } from 'node:stream';
import { ByteWindow } from '../../lib/tar/byte-window.ts';
import { implicitDirectory, type Inode } from '../../lib/tar/inode.ts';
import { TarWriter } from '../../lib/tar/tar-writer.ts';
import type { ContextEntry, ContextFiles } from './context-index.ts';
import type { Selection } from './select-files.ts';

const WINDOW_BYTES = 1 << 20;

export interface PackOptions {
  /** Replaces the name of a single file. */
  name?: string | undefined;
  mode?: number | undefined;
}

/** The reader must destroy the result, also if it has not begun: only then the archive is closed. */
export function packSelection(
  { path: contextPath, index }: ContextFiles,
  { entries }: Selection,
  { name, mode }: PackOptions,
): Readable {
  const output = new PassThrough({ highWaterMark: WINDOW_BYTES });
  // An error before the reader listens must not end the process. The reader finds the stream destroyed.
  output.on('error', () => undefined);
  const closed = new Promise<never>((_, reject) =>
    output.once('close', () => reject(new Error('the files are no longer read'))),
  );
  closed.catch(() => undefined);
  const write = async (chunk: Buffer): Promise<void> => {
    const written = new Promise<void>((resolve, reject) => {
      // The writer uses its memory again once this settles, and a reader may still hold the chunk then.
      output.write(Buffer.from(chunk), (error) => (error ? reject(error) : resolve()));
    });
    // A stream that is destroyed may never answer the write that it works on.
    await Promise.race([written, closed]);
  };
  const pack = async (): Promise<void> => {
    await using file = await open(contextPath, 'r');
    const window = new ByteWindow(file, WINDOW_BYTES);
    const writer = new TarWriter(write);
    for (const { number, path } of entries) {
      const inode = buildInode(index.entry(number), mode);
      await writer.writeInode(name === undefined ? path : Buffer.from(name).toString('latin1'), inode);
      if (inode.type === 'file') await writer.writeContent(window, inode);
    }
    await writer.end();
    output.end();
  };
  pack().catch((error: unknown) => output.destroy(error instanceof Error ? error : new Error(String(error))));
  return output;
}

/** The guest gives all files to the owner of the step. */
function buildInode(entry: ContextEntry, mode: number | undefined): Inode {
  const changed = mode === undefined || entry.type === 'symlink' ? entry.mode : mode;
  return { ...implicitDirectory(), ...entry, mode: changed };
}
