/**
 * Contexts of builds: archives with the files that COPY takes. Each waits on disk for one build, for an hour at most, and a start
 * of the service removes all. Other controls find in SQL that this one has it, and forward requests with it.
 *
 *   receive ─► waits ─► take ─► used by a build ─► disposed
 *                ▲                    │
 *                └──── giveBack ──────┘  the start of the build was refused
 */
import { createWriteStream, mkdirSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { AppError, type BuildContext } from '@coppice/contract';
import { findFreeBytes } from '../../lib/files/free-space.ts';
import { newId } from '../../lib/new-id.ts';
import { KeyedQueue } from '../../lib/waiting/keyed-queue.ts';
import { LayerError } from '../../lib/tar/layer-error.ts';
import { ElsewhereError } from '../placement/elsewhere.ts';
import { indexContext, MAX_INDEX_BYTES, type ContextFiles, type ContextIndex } from './context-index.ts';
import type { ContextStore } from './context-store.ts';

const MIB = 2 ** 20;
const MAX_CONTEXT_BYTES = 512 * MIB;
/** Of one organization. */
const MAX_CONTEXTS = 8;
/** A client that has uploaded a context starts its build within this time. */
const SPARED_MS = 60_000;
const KEPT_MS = 3_600_000;
/** One organization has at most this part of all room, so that it cannot shut out the others. */
const SHARES = 8;
const DEFAULT_RESERVE_MIB = 2048;
/** How often the free space is looked at while a context arrives. */
const SPACE_CHECK_BYTES = 8 * MIB;

export interface ContextLimits {
  diskReserveMiB?: number | undefined;
  /** Of all organizations. */
  totalBytes?: number;
  /** Memory of all indexes. */
  indexBytes?: number;
  /** Of one organization. */
  ownBytes?: number;
  ownIndexBytes?: number;
  freeBytes?: (directory: string) => Promise<number>;
  nowMs?: () => number;
}

interface Use {
  contexts: number;
  bytes: number;
  /** Bytes of memory for indexes: of finished ones, and reserved for those that are being made. */
  indexBytes: number;
}

interface Kept {
  id: string;
  organizationId: string;
  path: string;
  index: ContextIndex;
  sizeBytes: number;
  /** When it began to wait. */
  sinceMs: number;
  /** Of its removal, while it waits. A context without one is used by a build. */
  timer: NodeJS.Timeout | undefined;
}

/** A context that a build uses. Disposing it removes the context. */
export interface TakenContext extends ContextFiles, AsyncDisposable {
  /** Lets the context wait for another build: this one was refused before it began. */
  giveBack(): void;
}

type Store = Pick<ContextStore, 'insert' | 'extend' | 'delete' | 'findElsewhere'>;

export class BuildContexts implements Disposable {
  readonly #directory: string;
  readonly #store: Store;
  readonly #limits: Required<Omit<ContextLimits, 'diskReserveMiB'>> & { reserveBytes: number };
  readonly #kept = new Map<string, Kept>();
  /** Of each organization, also for contexts that are being received. */
  readonly #uses = new Map<string, Use>();
  /** Of all organizations. */
  readonly #total: Use = { contexts: 0, bytes: 0, indexBytes: 0 };
  /** An organization's archives are indexed one after another. */
  readonly #indexing = new KeyedQueue();

  constructor(directory: string, store: Store, limits: ContextLimits = {}) {
    this.#directory = directory;
    this.#store = store;
    const { totalBytes = 16 * 1024 * MIB, indexBytes = 512 * MIB } = limits;
    this.#limits = {
      reserveBytes: (limits.diskReserveMiB ?? DEFAULT_RESERVE_MIB) * MIB,
      totalBytes,
      indexBytes,
      ownBytes: limits.ownBytes ?? Math.max(totalBytes / SHARES, MAX_CONTEXT_BYTES),
      ownIndexBytes: limits.ownIndexBytes ?? Math.max(indexBytes / SHARES, MAX_INDEX_BYTES),
      freeBytes: limits.freeBytes ?? findFreeBytes,
      nowMs: limits.nowMs ?? (() => performance.now()),
    };
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  }

  /** Receives an archive. Throws `payload_too_large`, `capacity`, or `invalid_request` if it is no archive. */
  async receive(organizationId: string, content: Readable, signal: AbortSignal): Promise<BuildContext> {
    const kept = await this.#receive(organizationId, content, signal);
    const { id, sizeBytes } = kept;
    try {
      await this.#store.insert(kept, KEPT_MS);
    } catch (error) {
      await removeLater(this.#drop(kept));
      throw error;
    }
    return { id, size_bytes: sizeBytes, expires_at: new Date(Date.now() + KEPT_MS).toISOString() };
  }

  async #receive(organizationId: string, content: Readable, signal: AbortSignal): Promise<Kept> {
    const dropped = this.#makeRoom(organizationId);
    this.#count(organizationId, { contexts: 1 });
    const id = newId('context');
    const path = join(this.#directory, `${id}.tar`);
    const received = { bytes: 0 };
    try {
      await dropped;
      await this.#checkSpace();
      // A refused client must be able to read the answer: its connection stays.
      const chunks: AsyncIterable<Buffer> = content.iterator({ destroyOnReturn: false });
      const file = createWriteStream(path, { mode: 0o600, flags: 'wx' });
      await pipeline(this.#admit(organizationId, chunks, received), file, { signal });
      // Without the signal: what has begun ends by itself, and only then its memory is known.
      const index = await this.#indexing.run(organizationId, () =>
        this.#index(organizationId, { path, sizeBytes: received.bytes, signal }),
      );
      const kept = {
        id,
        organizationId,
        path,
        index,
        sizeBytes: received.bytes,
        sinceMs: 0,
        timer: undefined,
      };
      this.#kept.set(id, kept);
      this.#wait(kept);
      return kept;
    } catch (error) {
      this.#count(organizationId, { contexts: -1, bytes: -received.bytes });
      await removeLater(rm(path, { force: true }));
      throw asCapacity(error);
    }
  }

  /** Throws an {@link ElsewhereError} if another control has the context, and `invalid_request` if none has. */
  async requireHere(organizationId: string, id: string): Promise<void> {
    if (this.#kept.get(id)?.organizationId === organizationId) return;
    throw await this.#explainAbsence(organizationId, id, { nowhere: noContext(), forwarded: apart() });
  }

  /** Throws `invalid_request` if the organization has no context with the id here, or another build uses it. */
  take(organizationId: string, id: string): TakenContext {
    const kept = this.#kept.get(id);
    if (kept?.organizationId !== organizationId) throw noContext();
    if (kept.timer === undefined)
      throw new AppError(
        'invalid_request',
        'context: another build uses it; upload the files again with POST /v1/images/contexts',
      );
    clearTimeout(kept.timer);
    kept.timer = undefined;
    return {
      path: kept.path,
      index: kept.index,
      giveBack: () => this.#giveBack(kept),
      [Symbol.asyncDispose]: () => removeLater(this.#drop(kept)),
    };
  }

  /**
   * Removes a context that waits. Throws `not_found` if the organization has none with the id; an {@link ElsewhereError} if another
   * control has it.
   */
  async remove(organizationId: string, id: string): Promise<void> {
    const kept = this.#kept.get(id);
    if (kept?.organizationId === organizationId && kept.timer !== undefined) return this.#drop(kept);
    const nowhere = new AppError(
      'not_found',
      `no context ${JSON.stringify(id.slice(0, 64))} waits; one that a build uses is removed at its end`,
    );
    throw await this.#explainAbsence(organizationId, id, { nowhere, forwarded: nowhere });
  }

  [Symbol.dispose](): void {
    for (const { timer } of this.#kept.values()) clearTimeout(timer);
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #wait(kept: Kept): void {
    kept.sinceMs = this.#limits.nowMs();
    kept.timer = setTimeout(() => void removeLater(this.#drop(kept)), KEPT_MS).unref();
  }

  #giveBack(kept: Kept): void {
    // It may have been removed.
    if (this.#kept.get(kept.id) !== kept || kept.timer !== undefined) return;
    this.#wait(kept);
    // A failure costs little: other controls forget the context an hour before this one does.
    this.#store.extend(kept.id, KEPT_MS).catch(() => undefined);
  }

  /** `forwarded`: the answer if another control has the context, but has forwarded the request to this one. */
  async #explainAbsence(
    organizationId: string,
    id: string,
    { nowhere, forwarded }: { nowhere: AppError; forwarded: AppError },
  ): Promise<AppError> {
    const control = await this.#store.findElsewhere(organizationId, id);
    return control === undefined ? nowhere : new ElsewhereError(control, forwarded);
  }

  async #drop(kept: Kept): Promise<void> {
    if (!this.#kept.delete(kept.id)) return;
    clearTimeout(kept.timer);
    this.#count(kept.organizationId, {
      contexts: -1,
      bytes: -kept.sizeBytes,
      indexBytes: -kept.index.sizeBytes,
    });
    await rm(kept.path, { force: true });
    await removeLater(this.#store.delete(kept.id));
  }

  /** Drops the context of the organization that has waited longest, if it has as many as it may. Throws `capacity`. */
  #makeRoom(organizationId: string): Promise<void> | undefined {
    if (this.#use(organizationId).contexts < MAX_CONTEXTS) return undefined;
    const waiting = [...this.#kept.values()].filter(
      (kept) => kept.organizationId === organizationId && kept.timer !== undefined,
    );
    const [oldest] = waiting.toSorted((one, other) => one.sinceMs - other.sinceMs);
    if (oldest !== undefined && this.#limits.nowMs() - oldest.sinceMs > SPARED_MS) return this.#drop(oldest);
    throw new AppError(
      'capacity',
      `your organization has ${MAX_CONTEXTS} contexts that wait, are uploaded or are used by builds; build with one, delete one, or try later`,
    );
  }

  /** Counts bytes that arrive. Throws if there is no room for them. */
  async *#admit(
    organizationId: string,
    chunks: AsyncIterable<Buffer>,
    received: { bytes: number },
  ): AsyncGenerator<Buffer> {
    let nextCheck = SPACE_CHECK_BYTES;
    for await (const chunk of chunks) {
      received.bytes += chunk.length;
      this.#count(organizationId, { bytes: chunk.length });
      if (received.bytes > MAX_CONTEXT_BYTES)
        throw new AppError(
          'payload_too_large',
          `the context has more than ${MAX_CONTEXT_BYTES} bytes; leave files out with .dockerignore`,
        );
      if (this.#use(organizationId).bytes > this.#limits.ownBytes) throw ownFull();
      if (this.#total.bytes > this.#limits.totalBytes) throw full();
      if (received.bytes >= nextCheck) {
        await this.#checkSpace();
        nextCheck = received.bytes + SPACE_CHECK_BYTES;
      }
      yield chunk;
    }
  }

  async #checkSpace(): Promise<void> {
    if ((await this.#limits.freeBytes(this.#directory)) < this.#limits.reserveBytes) throw full();
  }

  /** Reserves the memory that the index may need before it is made. */
  async #index(
    organizationId: string,
    { path, sizeBytes, signal }: { path: string; sizeBytes: number; signal: AbortSignal },
  ): Promise<ContextIndex> {
    signal.throwIfAborted();
    // A block of the archive has at most one entry, and names are no longer than the archive.
    const reserved = Math.min(MAX_INDEX_BYTES, 2 * sizeBytes);
    if (this.#use(organizationId).indexBytes + reserved > this.#limits.ownIndexBytes) throw ownFull();
    if (this.#total.indexBytes + reserved > this.#limits.indexBytes) throw full();
    this.#count(organizationId, { indexBytes: reserved });
    let used = 0;
    try {
      const index = await readIndex(path, signal);
      used = index.sizeBytes;
      return index;
    } finally {
      this.#count(organizationId, { indexBytes: used - reserved });
    }
  }

  #use(organizationId: string): Readonly<Use> {
    return this.#uses.get(organizationId) ?? { contexts: 0, bytes: 0, indexBytes: 0 };
  }

  #count(organizationId: string, { contexts = 0, bytes = 0, indexBytes = 0 }: Partial<Use>): void {
    const use = { ...this.#use(organizationId) };
    for (const each of [use, this.#total]) {
      each.contexts += contexts;
      each.bytes += bytes;
      each.indexBytes += indexBytes;
    }
    if (use.contexts > 0) this.#uses.set(organizationId, use);
    else this.#uses.delete(organizationId);
  }
}

function noContext(): AppError {
  return new AppError(
    'invalid_request',
    'context: there is no such context, or it was used or has expired; upload it again with POST /v1/images/contexts',
  );
}

function apart(): AppError {
  return new AppError(
    'invalid_request',
    'context: the control that has its files lacks the image that the build begins with, or a runner; upload the files again with POST /v1/images/contexts, or begin with an image of a registry',
  );
}

function ownFull(): AppError {
  return new AppError(
    'capacity',
    'the contexts of your organization take all room that they may; build with one, delete one, or try later',
  );
}

/** After a failure, a file is removed by the next start, and a row by a purge. */
async function removeLater(removal: Promise<void>): Promise<void> {
  await removal.catch(() => undefined);
}

function full(cause?: unknown): AppError {
  return new AppError('capacity', 'this machine has no room for more contexts of builds; try again later', {
    cause,
  });
}

/** A disk that is full is no fault of the service. */
function asCapacity(error: unknown): unknown {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'ENOSPC' || code === 'EDQUOT' ? full(error) : error;
}

async function readIndex(path: string, signal: AbortSignal): Promise<ContextIndex> {
  try {
    return await indexContext(path, signal);
  } catch (error) {
    if (!(error instanceof LayerError)) throw error;
    throw new AppError('invalid_request', `the context is no usable tar archive: ${error.message}`, {
      cause: error,
    });
  }
}
