import { open, stat } from 'node:fs/promises';
import type { Writable } from 'node:stream';
import { runProcess } from './run-process.ts';
import { TarWriter } from './tar-writer.ts';

export interface SquashfsOptions {
  /** The tar2sqfs program. */
  tool: string;
  outputPath: string;
  timeoutMs: number;
  signal: AbortSignal;
  write: (writer: TarWriter) => Promise<void>;
}

/**
 * COMPRESSOR_REASON
 */
const COMPRESSOR = ['--compressor', 'zstd', '--comp-extra', 'level=1'];

const FILE_MODE = 0o444;

/** Turns what `write` writes into a squashfs file, read-only and on disk. Returns its size in bytes. */
export async function buildSquashfs(options: SquashfsOptions): Promise<number> {
  await runProcess({
    command: options.tool,
    // --no-skip: an entry that cannot be stored is an error, not a warning.
    args: ['--quiet', '--no-skip', ...COMPRESSOR, options.outputPath],
    timeoutMs: options.timeoutMs,
    signal: options.signal,
    feed: (stdin) => options.write(new TarWriter((chunk) => writeChunk(stdin, chunk))),
  });
  await using file = await open(options.outputPath, 'r');
  await file.chmod(FILE_MODE);
  await file.sync();
  return (await stat(options.outputPath)).size;
}

function writeChunk(stream: Writable, chunk: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(chunk, (error) => {
      if (error) reject(error);
      else resolve();
    });
  });
}
