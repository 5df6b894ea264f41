/**
 * Unpacks the layers of one image and packs the image, in two processes without privileges: layers are hostile archives,
 * and the runner is root.
 *
 *   blob k ─► runner ─► pipe k ─► unpack.mjs ─► archive k ─┐
 *                                      ▲                   │ "merge"
 *                                      └───────────────────┘
 *                                  unpack.mjs ─► pipe ─► tar2sqfs ─► image
 *
 * Both run in the launcher's jail, as a user that no other preparation has. They reach the files that the runner made for
 * them in one directory, which is not theirs: they can neither add a file nor replace one. So the runner, which is root,
 * finds in that directory what it put there.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  fchmodSync,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
} from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { AppError } from '@coppice/contract';
import { invariant } from '../../../lib/invariant.ts';
import { withDeadline } from '../../../lib/waiting/deadline.ts';
import type { TreeLimits } from '../layers/tree-budget.ts';
import { giveTo, takeBack } from '../../host/file-owner.ts';
import { ProcessError } from '../../host/run-process.ts';
import { LayerError } from '../tar/layer-error.ts';
import { LineReader } from './line-reader.ts';
import { MERGE, type UnpackLine } from './unpack-messages.ts';
import type { UnpackPlace } from './unpack-places.ts';
import { IMAGE_NAME, startPacking, startUnpacking, type UnpackFiles } from './unpack-programs.ts';

const IMAGE_MODE = 0o444;
const FILE_MODE = 0o600;
/** The user of the processes may enter the directory, and may not list it or change it. */
const DIRECTORY_MODE = 0o711;
const END_TIMEOUT_MS = 10_000;
const MAX_STDERR = 16 * 1024;

/** `directory` is made, on the file system of the images. */
export interface UnpackerOptions extends UnpackFiles {
  /** The largest size of the archive of each layer, the lowest first. */
  maxBytes: readonly number[];
  limits: TreeLimits;
}

export interface PackProgress {
  signal: AbortSignal;
  /** Called once, with the bytes of all files in the image. */
  onContentBytes: (bytes: number) => void;
  onBytes: (bytes: number) => void;
}

export class Unpacker implements AsyncDisposable {
  readonly #place: UnpackPlace;
  readonly #files: UnpackFiles;
  readonly #unpacking: Child;
  readonly #control: Socket;
  readonly #lines: LineReader;
  readonly #layers: PromiseWithResolvers<string>[];
  readonly #merged = Promise.withResolvers<{ acls: number }>();
  #packing: Child | undefined;
  #progress: PackProgress | undefined;

  /** Makes the files and starts the process. Throws `internal` when it cannot be started. */
  static async start(place: UnpackPlace, options: UnpackerOptions): Promise<Unpacker> {
    const { directory, maxBytes, limits } = options;
    makeFiles(directory, [...maxBytes.keys()].map(String), place.uid);
    const started = await startUnpacking(place, options, { maxBytes, limits });
    return new Unpacker(place, options, new Child('the unpacking process', started));
  }

  private constructor(place: UnpackPlace, options: UnpackerOptions, unpacking: Child) {
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
    const left = rejectWhenAborted(signal);
    const sent = pipeline(Readable.from(source, { objectMode: false }), this.#unpacking.socket(2 + layer), {
      signal,
    });
    // The process may answer before it has read everything; its answer is then the better reason.
    const [answered, sending] = await Promise.allSettled([Promise.race([answer.promise, left]), sent]);
    signal.throwIfAborted();
    if (answered.status === 'fulfilled' && sending.status === 'fulfilled') return answered.value;
    const isBrokenPipe = sending.status === 'rejected' && isEndOfReader(sending.reason);
    if (sending.status === 'rejected' && !isBrokenPipe) throw sending.reason;
    throw answered.status === 'rejected'
      ? answered.reason
      : new AppError('internal', `layer ${layer} was not read`);
  }

  /**
   * Merges all layers and packs the image. Moves it to `path`, owned by this process, read-only and synced. Returns its
   * size in bytes, and the number of entries that had an access control list.
   */
  async makeImage(path: string, progress: PackProgress): Promise<{ sizeBytes: number; acls: number }> {
    const { uid, tar2sqfs } = this.#place;
    const made = join(this.#files.directory, IMAGE_NAME);
    makeFile(made, uid);
    this.#progress = progress;
    const left = rejectWhenAborted(progress.signal);
    const started = await startPacking(this.#place, this.#files, this.#unpacking.socket(1));
    const packing = new Child(tar2sqfs, started);
    this.#packing = packing;
    this.#control.write(MERGE);
    const ends = Promise.allSettled([this.#merged.promise, packing.succeeded()]);
    const [merged, packed] = await Promise.race([ends, left]);
    // Without a reader the one cannot write: what the reader says is then the reason.
    if (packed.status === 'rejected' && (merged.status === 'fulfilled' || isEndOfReader(merged.reason)))
      throw packed.reason;
    if (merged.status === 'rejected') throw merged.reason;
    await this.#end();
    return { sizeBytes: takeImage(made, path), ...merged.value };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
    this.#fail(new AppError('internal', 'the preparation has ended'));
  }

  async #end(): Promise<void> {
    await Promise.all([this.#unpacking.end(), this.#packing?.end()]);
  }

  /** What the process said before it ended is read first. */
  async #watchEnd(): Promise<void> {
    const { name, ended } = this.#unpacking;
    const broken = await this.#lines.ended;
    this.#unpacking.kill();
    const how = await ended;
    this.#fail(broken ?? new AppError('internal', `${name} ended (${how}): ${this.#unpacking.said}`));
  }

  #hear(line: UnpackLine): void {
    if ('layer' in line) {
      const layer = this.#layers[line.layer];
      if ('digest' in line) layer?.resolve(line.digest);
      else layer?.reject(new LayerError(line.fault));
    } else if ('fault' in line) this.#fail(new LayerError(line.fault));
    else if ('error' in line)
      this.#fail(Object.assign(new Error(`${this.#unpacking.name}: ${line.error}`), { code: line.code }));
    else if ('content_bytes' in line) this.#progress?.onContentBytes(line.content_bytes);
    else if ('bytes' in line) this.#progress?.onBytes(line.bytes);
    else this.#merged.resolve({ acls: line.acls });
  }

  #fail(error: Error): void {
    for (const { reject } of [...this.#layers, this.#merged]) reject(error);
  }
}

/** A process of this preparation. It cannot start others: the launcher's filter of system calls refuses that. */
class Child {
  readonly name: string;
  /** Settles with how it ended. */
  readonly ended: Promise<string>;
  readonly #process: ChildProcess;
  #said = '';

  constructor(name: string, process: ChildProcess) {
    this.name = name;
    this.#process = process;
    // Whoever writes or reads sees it; a stream that nobody uses must not end the runner.
    for (const stream of process.stdio) stream?.on('error', () => undefined);
    process.stderr?.on('data', (chunk: Buffer) => {
      if (this.#said.length < MAX_STDERR) this.#said += chunk.toString('utf8').slice(0, MAX_STDERR);
    });
    const closed = once(process, 'close') as Promise<[number | null, string | null]>;
    this.ended = closed.then(
      ([code, signal]) => signal ?? `code ${code ?? 1}`,
      (error: unknown) => String(error),
    );
  }

  /** The end of what it has written to its standard error. */
  get said(): string {
    return this.#said.trim();
  }

  /** Its pipe number `index`, counted from the first descriptor that is not a standard stream. */
  socket(index: number): Socket {
    const socket = this.#process.stdio[3 + index];
    invariant(socket, 'it has a pipe there');
    return socket as Socket;
  }

  /** Throws {@link ProcessError} unless it ended well. */
  async succeeded(): Promise<void> {
    const how = await this.ended;
    if (how !== 'code 0') throw new ProcessError(`${this.name}: ${how}: ${this.said}`, { stderr: this.said });
  }

  kill(): void {
    this.#process.kill('SIGKILL');
  }

  /** Ends the process and waits for that. */
  async end(): Promise<void> {
    this.kill();
    for (const stream of this.#process.stdio) stream?.destroy();
    await withDeadline(`the end of ${this.name}`, END_TIMEOUT_MS, this.ended);
  }
}

function makeFiles(directory: string, names: readonly string[], uid: number | undefined): void {
  mkdirSync(directory);
  chmodSync(directory, DIRECTORY_MODE);
  for (const name of names) makeFile(join(directory, name), uid);
}

function makeFile(path: string, uid: number | undefined): void {
  closeSync(openSync(path, 'wx', FILE_MODE));
  if (uid !== undefined) giveTo(path, uid);
}

/** No process is left that could write to the file, and its place is the runner's. */
function takeImage(made: string, path: string): number {
  takeBack(made);
  const descriptor = openSync(made, 'r');
  try {
    fchmodSync(descriptor, IMAGE_MODE);
    fsyncSync(descriptor);
    const { size } = fstatSync(descriptor);
    renameSync(made, path);
    return size;
  } finally {
    closeSync(descriptor);
  }
}

function rejectWhenAborted(signal: AbortSignal): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  promise.catch(() => undefined);
  if (signal.aborted) reject(signal.reason as Error);
  signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  return promise;
}

/** The process has closed its end of the pipe. */
function isEndOfReader(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  return ['EPIPE', 'ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED'].includes(code);
}
