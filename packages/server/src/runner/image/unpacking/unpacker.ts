/**
 * Unpacks the layers of one image and packs the image, in two processes without privileges: layers are hostile archives,
 * and the runner is root.
 *
 *   blob k ─► runner ─► pipe k ─► unpack.mjs ─► archive k ─┐
 *                                      ▲                   │ "merge"
 *                                      └───────────────────┘
 *                                  unpack.mjs ─► pipe ─► tar2sqfs ─► image
 *
 * Both run in the launcher's jail, as a user that no other preparation has. They see the files that the runner made for
 * them, each by itself and never their directory: they can neither add a file nor replace one. So the runner, which is
 * root, finds in that directory what it put there.
 */
import { chmodSync, closeSync, mkdirSync, openSync, statSync } from 'node:fs';
import { open, rename } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { AppError } from '@coppice/contract';
import { invariant } from '../../../lib/invariant.ts';
import { untilAborted } from '../../../lib/waiting/deadline.ts';
import type { TreeLimits } from '../layers/tree-budget.ts';
import { giveTo, takeBack } from '../../host/file-owner.ts';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { LineReader } from './line-reader.ts';
import { UnpackChild } from './unpack-child.ts';
import { MERGE, type UnpackLine } from './unpack-messages.ts';
import type { UnpackPlace } from './unpack-places.ts';
import {
  IMAGE_NAME,
  startPacking,
  startReading,
  startUnpacking,
  type UnpackFiles,
} from './unpack-programs.ts';

const IMAGE_MODE = 0o444;
const FILE_MODE = 0o600;
/** Without mounts of their own, the programs reach the files by their paths. */
const DIRECTORY_MODE = 0o711;
/** First bytes of a squashfs file. */
const MAGIC = 'hsqs';

/** `directory` is made, on the file system of the images. */
export interface UnpackerOptions extends UnpackFiles {
  /** The largest size of the archive of each layer, the lowest first. */
  maxBytes: readonly number[];
  limits: TreeLimits;
}

/** The packed image would have more bytes than it may. */
export class ImageTooLargeError extends Error {
  override readonly name = 'ImageTooLargeError';
}

export interface PackProgress {
  signal: AbortSignal;
  /** The most bytes of the packed image; default: those of any file. */
  maxBytes?: number;
  /** Called once, with the bytes of all files in the image. */
  onContentBytes: (bytes: number) => void;
  /** Called with the bytes that were written; together they are at most those of all files. */
  onBytes: (bytes: number) => void;
}

export class Unpacker implements AsyncDisposable {
  readonly #place: UnpackPlace;
  readonly #files: UnpackFiles;
  readonly #unpacking: UnpackChild;
  readonly #control: Socket;
  readonly #lines: LineReader;
  readonly #layers: PromiseWithResolvers<string>[];
  readonly #answered = new Set<number>();
  readonly #merged = Promise.withResolvers<{ acls: number }>();
  #packing: UnpackChild | undefined;
  #reading: UnpackChild | undefined;
  #progress: PackProgress | undefined;
  /** Bytes of files that are still to be written; undefined until the process has counted them. */
  #restBytes: number | undefined;
  #hasFailed = false;

  /** Makes the files and starts the process. Throws `internal` or `unavailable` when it cannot be started. */
  static async start(place: UnpackPlace, options: UnpackerOptions): Promise<Unpacker> {
    const { directory, maxBytes, limits } = options;
    mkdirSync(directory);
    chmodSync(directory, DIRECTORY_MODE);
    for (const layer of maxBytes.keys()) makeFile(join(directory, String(layer)), place.uid);
    const started = await startUnpacking(place, options, { maxBytes, limits });
    return new Unpacker(place, options, new UnpackChild('the unpacking process', started));
  }

  private constructor(place: UnpackPlace, options: UnpackerOptions, unpacking: UnpackChild) {
    this.#place = place;
    this.#files = options;
    this.#unpacking = unpacking;
    this.#layers = options.maxBytes.map(() => Promise.withResolvers<string>());
    for (const { promise } of [...this.#layers, this.#merged]) promise.catch(() => undefined);
    this.#control = unpacking.socket(0);
    this.#lines = new LineReader(this.#control, (line) => this.#hear(line));
    void this.#watchEnd();
  }

  /** Unpacks a stored layer. Returns the digest of its archive. Throws {@link LayerError} when it is damaged or too large. */
  async unpackLayer(layer: number, source: AsyncIterable<Buffer>, signal: AbortSignal): Promise<string> {
    const answer = this.#layers[layer];
    invariant(answer, 'the layer is one of this image');
    const done = new AbortController();
    const sent = pipeline(Readable.from(source, { objectMode: false }), this.#unpacking.socket(2 + layer), {
      signal: AbortSignal.any([signal, done.signal]),
    }).then(
      () => true,
      (error: unknown) => {
        // The process has closed its end of the pipe, and its answer is the better reason.
        if (isEndOfReader(error)) return false;
        throw error;
      },
    );
    try {
      const [digest, isWhole] = await untilAborted(signal, Promise.all([answer.promise, sent]));
      if (!isWhole) throw new AppError('internal', `${this.#unpacking.name} did not read layer ${layer}`);
      return digest;
    } finally {
      done.abort();
    }
  }

  /** Unpacks the content of a stored image as a layer. Throws when the image cannot be read. */
  async unpackImage(layer: number, imagePath: string, signal: AbortSignal): Promise<void> {
    const started = await startReading(this.#place, this.#files, imagePath);
    const reading = new UnpackChild('sqfs2tar', started);
    this.#reading = reading;
    const archive = started.stdout;
    invariant(archive, 'its standard output is a pipe');
    await this.unpackLayer(layer, archive as AsyncIterable<Buffer>, signal);
    await untilAborted(signal, reading.succeeded());
  }

  /**
   * Merges all layers and packs the image. Moves it to `path`, owned by this process, read-only and synced. Returns its
   * size in bytes, and the number of entries that had an access control list. Throws {@link ImageTooLargeError} as soon
   * as it has more than `maxBytes`.
   */
  async makeImage(path: string, progress: PackProgress): Promise<{ sizeBytes: number; acls: number }> {
    const { uid, tar2sqfs } = this.#place;
    const made = join(this.#files.directory, IMAGE_NAME);
    makeFile(made, uid);
    this.#progress = progress;
    const { maxBytes = Infinity } = progress;
    const files = { ...this.#files, maxFileBytes: Math.min(this.#files.maxFileBytes, maxBytes) };
    const started = await startPacking(this.#place, files, this.#unpacking.socket(1));
    const packing = new UnpackChild(tar2sqfs, started);
    this.#packing = packing;
    this.#control.write(MERGE);
    const ends = Promise.allSettled([this.#merged.promise, packing.succeeded()]);
    const [merged, packed] = await untilAborted(progress.signal, ends);
    // A packer that fails takes the reader from the other process; a fault of the layers comes before it.
    if (
      packed.status === 'rejected' &&
      !(merged.status === 'rejected' && merged.reason instanceof LayerError)
    )
      // The packer reports only that it cannot write.
      throw statSync(made).size < maxBytes
        ? packed.reason
        : new ImageTooLargeError(`the image has more than ${maxBytes} bytes`, { cause: packed.reason });
    if (merged.status === 'rejected') throw merged.reason;
    await this.#end();
    return { sizeBytes: await takeImage(made, path), ...merged.value };
  }

  /** Ends both processes. A process that does not end is ended before its user is used again. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end().catch((error: unknown) =>
      this.#place.log.error({ err: error }, 'a process of the preparation of an image has not ended'),
    );
    this.#fail(new AppError('internal', 'the preparation has ended'));
  }

  async #end(): Promise<void> {
    const ends = await Promise.allSettled(
      [this.#unpacking, this.#packing, this.#reading].map(async (child) => child?.end()),
    );
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
  }

  /** Settles all answers when the process ends. The lines that it wrote before that are read first. */
  async #watchEnd(): Promise<void> {
    const { name, ended } = this.#unpacking;
    const broken = await this.#lines.ended;
    this.#unpacking.kill();
    const how = await ended;
    this.#fail(broken ?? new AppError('internal', `${name} ended (${how}): ${this.#unpacking.said}`));
  }

  /** Throws when the process says something twice, or at a wrong time. */
  #hear(line: UnpackLine): void {
    if ('layer' in line) return this.#hearLayer(line);
    if ('fault' in line) return this.#fail(new LayerError(line.fault));
    if ('error' in line) {
      const text = `${this.#unpacking.name}: ${line.error}`;
      return this.#fail(Object.assign(new Error(text), { code: line.code }));
    }
    if ('content_bytes' in line) return this.#hearContent(line.content_bytes);
    if ('bytes' in line) return this.#hearBytes(line.bytes);
    this.#merged.resolve({ acls: line.acls });
  }

  #hearLayer(line: Extract<UnpackLine, { layer: number }>): void {
    const layer = this.#layers[line.layer];
    if (layer === undefined || this.#answered.has(line.layer)) throw new RangeError(`layer ${line.layer}`);
    this.#answered.add(line.layer);
    if ('digest' in line) layer.resolve(line.digest);
    else layer.reject(new LayerError(line.fault));
  }

  #hearContent(bytes: number): void {
    if (this.#progress === undefined || this.#restBytes !== undefined) throw new RangeError('content_bytes');
    this.#restBytes = bytes;
    this.#progress.onContentBytes(bytes);
  }

  #hearBytes(bytes: number): void {
    if (this.#restBytes === undefined || bytes > this.#restBytes) throw new RangeError('bytes');
    this.#restBytes -= bytes;
    this.#progress?.onBytes(bytes);
  }

  /** Rejects all answers, once, and ends the process: nothing that it says later counts. */
  #fail(error: Error): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    for (const { reject } of [...this.#layers, this.#merged]) reject(error);
    this.#control.destroy();
  }
}

function makeFile(path: string, uid: number | undefined): void {
  closeSync(openSync(path, 'wx', FILE_MODE));
  if (uid !== undefined) giveTo(path, uid);
}

/** Takes a file that no process can write to any more, and whose place is the runner's. */
async function takeImage(made: string, path: string): Promise<number> {
  takeBack(made);
  await using file = await open(made, 'r');
  const { size } = await file.stat();
  const { buffer, bytesRead } = await file.read(Buffer.alloc(MAGIC.length), 0, MAGIC.length, 0);
  if (buffer.toString('latin1', 0, bytesRead) !== MAGIC)
    throw new AppError('internal', 'the packed image is no squashfs file');
  await file.chmod(IMAGE_MODE);
  await file.sync();
  await rename(made, path);
  return size;
}

/** Whether writing failed because the other end of the pipe is closed. */
function isEndOfReader(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  return ['EPIPE', 'ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED'].includes(code);
}
