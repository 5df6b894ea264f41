/**
 * Disks that are made from files: those that callers send, which may be hostile, and empty file systems that are made
 * here. The block server reads the files, checks them before it makes anything, and completes an interrupted import when
 * it is repeated.
 */
import { mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { AppError } from '@coppice/contract';
import { runCommand } from '../../lib/process/run-command.ts';
import type { DiskFormat } from '../../lib/protocol/disk-protocol.ts';
import type { DiskGuard } from '../capacity/disk-guard.ts';
import { DiskManifest } from './block-requests.ts';
import { BlockServerError, type BlockServer } from './block-server.ts';

const FORMAT_OPTIONS = 'lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0';
const IMPORT_TIMEOUT_MS = 60 * 60_000;
const MIB = 1024 * 1024;
/** The room on the host is checked before so much of an image is written. */
const CHECK_BYTES = 64 * MIB;
/** A qcow2 file is larger than its content, and may have more of it than the disk. */
const QCOW2_OVERHEAD = 2;

export interface DiskImportsParts {
  server: BlockServer;
  /** Directory of images in the making; below that of the overlays. */
  directory: string;
  /** Name of that directory below that of the overlays. */
  name: string;
  mke2fs: string;
  disk: DiskGuard;
}

export interface DiskKey {
  organization: string;
  disk: string;
}

export interface ImageLimits {
  format: DiskFormat;
  /** The largest size of the disk. */
  maxBytes: number;
}

export class DiskImports {
  readonly #parts: DiskImportsParts;
  readonly #running = new Set<{ key: DiskKey; ended: Promise<void> }>();
  #lastImage = 0;

  constructor(parts: DiskImportsParts) {
    this.#parts = parts;
    // Of an earlier process.
    rmSync(parts.directory, { recursive: true, force: true });
    mkdirSync(parts.directory, { recursive: true, mode: 0o711 });
  }

  /** Makes a disk with an empty file system. */
  format(key: DiskKey, sizeBytes: number): Promise<void> {
    return this.#run(key, async ({ name, path }) => {
      writeFileSync(path, '', { mode: 0o644 });
      truncateSync(path, sizeBytes);
      const options = ['-t', 'ext4', '-F', '-q', '-m', '0', '-E', FORMAT_OPTIONS];
      await runCommand(this.#parts.mke2fs, [...options, path]);
      await this.#import(key, { overlay: name, format: 'raw', size_bytes: sizeBytes });
    });
  }

  /** Makes a disk from an image, whose size it gets. */
  receive(key: DiskKey, content: AsyncIterable<Buffer>, { format, maxBytes }: ImageLimits): Promise<void> {
    const { disk } = this.#parts;
    return this.#run(key, async ({ name, path }) => {
      const source = meter(content, limitFile(format, maxBytes), disk);
      // A stream that opens its file itself may do so after the file was removed.
      await using file = await open(path, 'wx', 0o644);
      await pipeline(source, file.createWriteStream());
      const limits = { max_bytes: maxBytes, file_system: 'ext4' };
      await this.#import(key, { overlay: name, format, ...limits }).catch(nameBody);
    });
  }

  /** Resolves when no import of the disk runs. */
  async settle({ organization, disk }: DiskKey): Promise<void> {
    const running = [...this.#running].filter(
      ({ key }) => key.organization === organization && key.disk === disk,
    );
    await Promise.all(running.map(({ ended }) => ended));
  }

  /** Runs `work` with a file of its own: control repeats a request while the first is still reading its file. */
  async #run(key: DiskKey, work: (file: { name: string; path: string }) => Promise<void>): Promise<void> {
    this.#lastImage += 1;
    const name = `${this.#lastImage}.image`;
    const path = join(this.#parts.directory, name);
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    const running = { key, ended };
    this.#running.add(running);
    try {
      await work({ name, path });
    } finally {
      rmSync(path, { force: true });
      this.#running.delete(running);
      resolve();
    }
  }

  async #import(
    { organization: org, disk }: DiskKey,
    { overlay, ...how }: { overlay: string } & Record<string, string | number>,
  ): Promise<void> {
    const { server, name } = this.#parts;
    // An import is done once, however often it is asked for.
    const source = `import-${disk}`;
    const request = { op: 'import', org, disk, source, overlay: join(name, overlay), ...how };
    await server.ask(request, DiskManifest, { timeoutMs: IMPORT_TIMEOUT_MS });
  }
}

function limitFile(format: DiskFormat, maxBytes: number): number {
  return format === 'raw' ? maxBytes : QCOW2_OVERHEAD * maxBytes + 64 * MIB;
}

/** Passes an image on, and throws when it has more bytes than allowed, or the host too little room. */
async function* meter(
  content: AsyncIterable<Buffer>,
  maxBytes: number,
  disk: DiskGuard,
): AsyncGenerator<Buffer> {
  let bytes = 0;
  let checkAt = 0;
  for await (const chunk of content) {
    bytes += chunk.length;
    if (bytes > maxBytes)
      throw new AppError('payload_too_large', `body: the image has more than ${maxBytes} bytes`);
    if (bytes > checkAt) {
      disk.assertRoom((2 * CHECK_BYTES) / MIB);
      checkAt = bytes + CHECK_BYTES;
    }
    yield chunk;
  }
}

/** The block server does not know from where it has the image. */
function nameBody(error: unknown): never {
  if (!(error instanceof BlockServerError) || !['refused', 'too_large'].includes(error.reason)) throw error;
  throw new AppError(error.code, `body: ${error.message}`, { cause: error });
}
