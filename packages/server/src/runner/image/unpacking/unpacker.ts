/**
 * Unpacks layers and builds an image from them in a process without privileges: layers are hostile archives, and the runner
 * is root. The process works in a directory of its own, as a user of its own, so that it reaches neither the host's files
 * nor another preparation's.
 */
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
} from 'node:fs';
import { request, type ClientRequest, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { AppError } from '@coppice/contract';
import { stretched, withDeadline } from '../../../lib/waiting/deadline.ts';
import { giveTo } from '../../host/file-owner.ts';
import { killAndWait, listProcessesOfUids } from '../../host/host-process.ts';
import { ProcessError } from '../../host/run-process.ts';
import { LayerError } from '../tar/layer-error.ts';
import {
  IMAGE_NAME,
  ImageLine,
  LayerAnswer,
  SOCKET_NAME,
  type ImageRequest,
  type UnpackFault,
} from './unpack-protocol.ts';
import type { UnpackOptions } from './unpack-role.ts';

const START_TIMEOUT_MS = 30_000;
const IMAGE_MODE = 0o444;
const MAX_STDERR = 2000;

/** A program that runs the unpacking role, and arguments before its options. */
export interface UnpackProgram {
  path: string;
  args: readonly string[];
}

export interface UnpackerOptions {
  program: UnpackProgram;
  /** The tar2sqfs program. */
  tar2sqfs: string;
  /** A directory to make, on the file system of the images. */
  directory: string;
  /** User of this preparation alone; null: as this process, which is an ordinary user's. */
  uid: number | null;
}

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

export class Unpacker implements AsyncDisposable {
  readonly #options: UnpackerOptions;
  readonly #child: Child;
  readonly #exited: Promise<unknown>;
  #said = '';

  private constructor(options: UnpackerOptions, child: Child) {
    this.#options = options;
    this.#child = child;
    this.#exited = once(child, 'exit').catch(() => undefined);
    child.stderr.on(
      'data',
      (chunk: Buffer) => (this.#said = (this.#said + chunk.toString('utf8')).slice(-MAX_STDERR)),
    );
    child.stdin.on('error', () => undefined);
  }

  /** Throws `internal` when the process does not start. */
  static async start(options: UnpackerOptions): Promise<Unpacker> {
    const { program, directory, uid, tar2sqfs } = options;
    if (uid !== null) await killAll(uid);
    mkdirSync(directory, { mode: 0o700 });
    if (uid !== null) giveTo(directory, uid);
    const asked: UnpackOptions = { uid, tar2sqfs, deadlineFactor: stretched(1) };
    const child = spawn(process.execPath, [program.path, ...program.args, JSON.stringify(asked)], {
      cwd: directory,
      env: {},
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    const unpacker = new Unpacker(options, child);
    try {
      const ready = Promise.race([once(child.stdout, 'data'), unpacker.#exited.then(() => undefined)]);
      if ((await withDeadline('starting the unpacking process', START_TIMEOUT_MS, ready)) === undefined)
        throw new AppError('internal', `the unpacking process did not start: ${unpacker.#said.trim()}`);
      return unpacker;
    } catch (error) {
      await unpacker[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Unpacks a stored layer. Returns the digest of its archive. Throws {@link LayerError} when it is damaged or too large. */
  async unpackLayer(
    index: number,
    source: AsyncIterable<Buffer>,
    { maxBytes, signal }: { maxBytes: number; signal: AbortSignal },
  ): Promise<string> {
    const asked = this.#request('PUT', `/layers/${index}?max_bytes=${maxBytes}`, signal);
    const answered = this.#answer(asked);
    const sent = pipeline(Readable.from(source, { objectMode: false }), asked, { signal });
    // The process may answer before it has read everything; its answer is then the better reason.
    const [answer, sending] = await Promise.allSettled([answered.then(readAll), sent]);
    signal.throwIfAborted();
    if (answer.status === 'fulfilled') {
      const line = LayerAnswer.parse(JSON.parse(answer.value));
      if ('error' in line) throw toError(line.error);
      if (sending.status === 'fulfilled') return line.digest;
    }
    throw sending.status === 'rejected' ? sending.reason : (answer as PromiseRejectedResult).reason;
  }

  /** Builds the image from all layers. Returns the number of entries with an access control list. */
  async makeImage(
    asked: ImageRequest,
    {
      signal,
      onContentBytes,
      onBytes,
    }: { signal: AbortSignal; onContentBytes: (bytes: number) => void; onBytes: (bytes: number) => void },
  ): Promise<{ acls: number }> {
    const sent = this.#request('POST', '/image', signal);
    const answered = this.#answer(sent);
    sent.end(JSON.stringify(asked));
    try {
      for await (const text of createInterface({ input: await answered })) {
        const line = ImageLine.parse(JSON.parse(text));
        if ('error' in line) throw toError(line.error);
        if ('made' in line) return line.made;
        if ('content_bytes' in line) onContentBytes(line.content_bytes);
        else onBytes(line.bytes);
      }
    } catch (error) {
      // What ended the request says more than how the stream broke.
      signal.throwIfAborted();
      throw error;
    }
    signal.throwIfAborted();
    throw new AppError('internal', `the unpacking process ended: ${this.#said.trim()}`);
  }

  /**
   * Ends the process and moves the image that it has made to `path`, owned by this process, read-only and synced. Returns its
   * size in bytes.
   */
  async takeImage(path: string): Promise<number> {
    // A process that is still there could write to the file later.
    await this.#end();
    const made = join(this.#options.directory, IMAGE_NAME);
    const descriptor = openSync(made, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const found = fstatSync(descriptor);
      if (!found.isFile() || found.nlink !== 1)
        throw new AppError('internal', 'the unpacking process made no regular file');
      if (this.#options.uid !== null) fchownSync(descriptor, 0, 0);
      fchmodSync(descriptor, IMAGE_MODE);
      fsyncSync(descriptor);
      renameSync(made, path);
      return found.size;
    } finally {
      closeSync(descriptor);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
  }

  /** Also ends programs that the process has started, and any that a hostile layer made it start. */
  async #end(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#exited;
    const { uid } = this.#options;
    if (uid !== null) await killAll(uid);
  }

  #request(method: string, path: string, signal: AbortSignal): ClientRequest {
    // By the process's own directory: the path of a Unix socket is limited to 107 bytes.
    const socketPath = `/proc/${this.#child.pid}/cwd/${SOCKET_NAME}`;
    return request({ socketPath, method, path, signal, agent: false });
  }

  async #answer(asked: ClientRequest): Promise<IncomingMessage> {
    const answered = Promise.withResolvers<IncomingMessage>();
    asked.once('response', answered.resolve);
    asked.once('error', (error) => {
      const reason = new AppError(
        'internal',
        `the unpacking process failed: ${this.#said.trim() || error.message}`,
        { cause: error },
      );
      answered.reject(reason);
    });
    return answered.promise;
  }
}

/** No process of a former preparation, or of a former runner, may be left. */
async function killAll(uid: number): Promise<void> {
  for (const left of listProcessesOfUids(uid, uid)) await killAndWait(left);
}

async function readAll(answer: IncomingMessage): Promise<string> {
  const chunks = (await answer.toArray()) as Buffer[];
  return Buffer.concat(chunks).toString('utf8');
}

function toError({ kind, message }: UnpackFault): Error {
  switch (kind) {
    case 'layer':
      return new LayerError(message);
    case 'space':
      return Object.assign(new Error(message), { code: 'ENOSPC' });
    case 'time':
      return new ProcessError(message, { stderr: '', isTimeout: true });
    case 'other':
      return new AppError('internal', `unpacking failed: ${message}`);
    default:
      return kind satisfies never;
  }
}
