/**
 * Contexts of builds: archives with the files that COPY takes. They wait on disk for a build, for an hour at most, and a start
 * of the service removes all.
 */
import { createWriteStream, mkdirSync, rmSync } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Transform, type Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { AppError, type BuildContext } from '@coppice/contract';
import { newId } from '../../lib/new-id.ts';
import { LayerError } from '../../lib/tar/layer-error.ts';
import { parseLayerPath } from '../../lib/tar/layer-path.ts';
import { readTar } from '../../lib/tar/tar-reader.ts';

const MIB = 2 ** 20;
const MAX_CONTEXT_BYTES = 512 * MIB;
/** Of one organization. */
const MAX_CONTEXTS = 8;
const MAX_ENTRIES = 100_000;
const KEPT_MS = 3_600_000;

interface Kept {
  organizationId: string;
  path: string;
  timer: NodeJS.Timeout;
}

export class BuildContexts implements Disposable {
  readonly #directory: string;
  readonly #kept = new Map<string, Kept>();
  /** Contexts of each organization, also those that are being received. */
  readonly #counts = new Map<string, number>();

  constructor(directory: string) {
    this.#directory = directory;
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  }

  /** Receives an archive. Throws `payload_too_large`, `capacity`, or `invalid_request` if it is no archive. */
  async receive(organizationId: string, content: Readable, signal: AbortSignal): Promise<BuildContext> {
    const count = this.#counts.get(organizationId) ?? 0;
    if (count >= MAX_CONTEXTS)
      throw new AppError(
        'capacity',
        `your organization has ${MAX_CONTEXTS} contexts waiting; build with one, or try later`,
      );
    this.#counts.set(organizationId, count + 1);
    const id = newId('context');
    const path = join(this.#directory, `${id}.tar`);
    try {
      const meter = new Meter();
      // A refused client must be able to read the answer: its connection stays.
      const received = content.iterator({ destroyOnReturn: false });
      await pipeline(received, meter, createWriteStream(path, { mode: 0o600, flags: 'wx' }), { signal });
      await checkArchive(path);
      const timer = setTimeout(() => void this.drop(id), KEPT_MS).unref();
      this.#kept.set(id, { organizationId, path, timer });
      return { id, size_bytes: meter.bytes, expires_at: new Date(Date.now() + KEPT_MS).toISOString() };
    } catch (error) {
      await rm(path, { force: true });
      this.#uncount(organizationId);
      throw error;
    }
  }

  /** Returns the path of a context. Throws `invalid_request` if the organization has none with the id. */
  find(organizationId: string, id: string): string {
    const kept = this.#kept.get(id);
    if (kept?.organizationId === organizationId) return kept.path;
    throw new AppError(
      'invalid_request',
      'context: there is no such context, or it was used or has expired; upload it again with POST /v1/images/contexts',
    );
  }

  /** Removes a context, once its build has ended or its time is over. */
  async drop(id: string): Promise<void> {
    const kept = this.#kept.get(id);
    if (kept === undefined) return;
    clearTimeout(kept.timer);
    this.#kept.delete(id);
    this.#uncount(kept.organizationId);
    await rm(kept.path, { force: true });
  }

  [Symbol.dispose](): void {
    for (const { timer } of this.#kept.values()) clearTimeout(timer);
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #uncount(organizationId: string): void {
    const left = (this.#counts.get(organizationId) ?? 0) - 1;
    if (left > 0) this.#counts.set(organizationId, left);
    else this.#counts.delete(organizationId);
  }
}

class Meter extends Transform {
  bytes = 0;

  override _transform(
    chunk: Buffer,
    _: BufferEncoding,
    done: (error: Error | null, data?: Buffer) => void,
  ): void {
    this.bytes += chunk.length;
    if (this.bytes <= MAX_CONTEXT_BYTES) done(null, chunk);
    else
      done(
        new AppError(
          'payload_too_large',
          `the context has more than ${MAX_CONTEXT_BYTES} bytes; leave files out with .dockerignore`,
        ),
      );
  }
}

async function checkArchive(path: string): Promise<void> {
  await using file = await open(path, 'r');
  let entries = 0;
  try {
    for await (const entry of readTar(file)) {
      parseLayerPath(entry.name);
      entries += 1;
      if (entries > MAX_ENTRIES) throw new LayerError(`it has more than ${MAX_ENTRIES} entries`);
      if (!['file', 'directory', 'symlink'].includes(entry.type))
        throw new LayerError(
          `${JSON.stringify(entry.name)} is a ${entry.type}; only files, directories and symbolic links can be copied`,
        );
    }
  } catch (error) {
    if (!(error instanceof LayerError)) throw error;
    throw new AppError('invalid_request', `the context is no usable tar archive: ${error.message}`, {
      cause: error,
    });
  }
}
