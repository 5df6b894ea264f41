/**
 * Captures in the object store, from which any runner of the region can restore them. The local copy is then a cache:
 *
 *   taken ─► local ── store ─► local and stored ── drop, or eviction when the disk is short ─► stored ── fetch ─► …
 *
 * A capture is usable as soon as it is local, and is never written again. Only processes of their own talk to the store:
 * small requests are those of the block server, transfers are capture-transfer.ts.
 */
import { linkSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { syncLater } from '../../lib/files/durable-file.ts';
import {
  CollectedCaptures,
  type CaptureObjectsState,
  type StoredCapture,
} from '../../lib/protocol/capture-protocol.ts';
import type { CaptureInfo } from '../../lib/protocol/runner-protocol.ts';
import { SingleFlight } from '../../lib/waiting/single-flight.ts';
import { Slots } from '../../lib/waiting/slots.ts';
import { imageKey, type CacheLeases } from '../cache/cache-leases.ts';
import { LastUse } from '../cache/last-use.ts';
import { freezeFile, VmDirectory } from '../disk/vm-directory.ts';
import { openManifest, sealManifest, type CaptureManifest } from '../snapshot/capture-manifest.ts';
import type { CaptureFiles, CaptureStore } from '../snapshot/capture-store.ts';
import type { BlockServer } from '../workspace/block-server.ts';
import type { DiskOperations } from '../workspace/disk-operations.ts';
import {
  assertCaptureFiles,
  IMAGE_NAME,
  listCaptureFiles,
  makeFiles,
  openFiles,
  openIn,
} from './capture-files.ts';
import { FETCH_TIMEOUT_MS, FETCHES, runTransfer, STORE_TIMEOUT_MS, STORES } from './capture-transfer.ts';
import { deleteStored, Fetched, findStored, isDamaged, Sent, type Found } from './stored-captures.ts';
import { writeStoredMark } from './stored-mark.ts';

const COLLECT_TIMEOUT_MS = 30 * 60_000;
const MIB = 1024 * 1024;

export interface CaptureObjectsParts {
  captures: CaptureStore;
  server: Pick<BlockServer, 'ask' | 'transferCommand'>;
  /** Whether the store is on other machines. In a directory of this one it would hold each capture twice. */
  isShared: boolean;
  disks: Pick<DiskOperations, 'forgetVersion'>;
  images: { find(digest: string): { path: string } | undefined };
  leases: CacheLeases;
  /** Makes room for that much, or throws `capacity`. */
  makeRoom: (neededMiB: number) => Promise<void>;
  /** Throws `snapshot_unusable` if the capture cannot continue on this machine. */
  assertUsable: (manifest: CaptureManifest) => void;
  log: Logger;
}

type Kind = 'storing' | 'fetching';

interface Running {
  kind: Kind;
  abort: AbortController;
  done: Promise<unknown>;
}

export class CaptureObjects implements AsyncDisposable {
  readonly #parts: CaptureObjectsParts;
  readonly #stores = new SingleFlight<StoredCapture>();
  readonly #fetches = new SingleFlight<CaptureInfo>();
  readonly #running = new Map<string, Running>();
  readonly #slots = {
    storing: new Slots('snapshots to store', STORES),
    fetching: new Slots('snapshots to fetch', FETCHES),
  };
  #isClosed = false;

  constructor(parts: CaptureObjectsParts) {
    this.#parts = parts;
  }

  /** Throws `not_found` if the runner cannot reach the object store's captures and has none itself. */
  async state(id: string, organization: string): Promise<CaptureObjectsState> {
    const found = this.#parts.isShared ? await this.#find(id, organization) : undefined;
    return {
      local: this.#parts.captures.find(id) !== undefined,
      stored: found !== undefined,
      stored_bytes: found?.stored_bytes ?? 0,
      transfer: this.#running.get(id)?.kind ?? 'none',
    };
  }

  /** Stores a local capture, unless it is stored. Chunks that the store has are not sent again. */
  store(id: string, organization: string): Promise<StoredCapture> {
    this.#assertShared();
    return this.#stores.run(id, () =>
      this.#run(id, 'storing', (signal) => this.#store(id, organization, signal)),
    );
  }

  /** Fetches a stored capture, unless it is local. */
  async fetch(id: string, organization: string): Promise<CaptureInfo> {
    const local = this.#parts.captures.find(id);
    if (local !== undefined) return local;
    this.#assertShared();
    return this.#fetches.run(id, () =>
      this.#run(id, 'fetching', (signal) => this.#fetch(id, organization, signal)),
    );
  }

  /** As `use` of the capture store, after fetching the capture of an organization that is not local. */
  async use<T>(
    { id, organization }: { id: string; organization: string | undefined },
    work: (files: CaptureFiles, manifest: CaptureManifest) => Promise<T>,
  ): Promise<T> {
    const { captures, isShared } = this.#parts;
    if (isShared && organization !== undefined) await this.fetch(id, organization);
    if (captures.find(id) !== undefined) LastUse.read(captures.directoryOf(id)).mark();
    return captures.use(id, work);
  }

  /** Removes the local copy of a capture that the store has. Throws `invalid_state` if it has not, or if it is in use. */
  async drop(id: string, organization: string): Promise<void> {
    const { captures } = this.#parts;
    if (captures.find(id) === undefined) return;
    this.#assertShared();
    if ((await this.#find(id, organization)) === undefined)
      throw new AppError(
        'invalid_state',
        `the object store does not have the snapshot ${id}; store it first`,
      );
    await captures.remove(id);
  }

  /**
   * Deletes a capture, and ends its transfers. The version of the persistent disk is no longer kept either. Without an
   * organization its objects stay. Throws `not_found` if there is none.
   */
  async remove(id: string, organization: string | undefined): Promise<void> {
    const { captures, disks, isShared } = this.#parts;
    await this.#stop(id);
    const local = captures.find(id);
    // Before the version goes: the copy that is being made needs it.
    const isKnown = captures.has(id);
    if (isKnown) captures.assertUnused(id);
    const owner = isShared ? organization : undefined;
    const found = owner === undefined ? undefined : await this.#find(id, owner);
    if (!isKnown && found === undefined) throw new AppError('not_found', `there is no snapshot ${id}`);
    const workspace = local?.workspace ?? (found && openManifest(() => found.about).info.workspace);
    if (workspace !== undefined) await disks.forgetVersion(workspace);
    if (owner !== undefined) await deleteStored(this.#parts.server, owner, id);
    if (isKnown) await captures.remove(id);
  }

  /** Deletes objects of the organization that no capture needs, which takes two requests. */
  collect(organization: string): Promise<CollectedCaptures> {
    this.#assertShared();
    const request = { op: 'collect_captures', org: organization };
    return this.#parts.server.ask(request, CollectedCaptures, { timeoutMs: COLLECT_TIMEOUT_MS });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#running.keys()].map((id) => this.#stop(id)));
  }

  async #store(id: string, organization: string, signal: AbortSignal): Promise<StoredCapture> {
    const { captures, server, log } = this.#parts;
    return captures.use(id, async (_, manifest) => {
      const startedAt = performance.now();
      const path = captures.directoryOf(id);
      using stack = new DisposableStack();
      const files = Array.from(openFiles(path, listCaptureFiles(path), stack), ([name, descriptor]) => ({
        name,
        descriptor,
      }));
      const transfer = { organization, captureId: id, about: sealManifest(manifest), files };
      const limits = { timeoutMs: STORE_TIMEOUT_MS, signal };
      const sent = await runTransfer(server.transferCommand('store'), { ...transfer, ...limits }, Sent);
      await writeStoredMark(path, { organization, stored_bytes: sent.stored_bytes });
      const elapsed_ms = Math.round(performance.now() - startedAt);
      log.info({ capture_id: id, ...sent, elapsed_ms }, 'capture stored');
      return sent;
    });
  }

  async #fetch(id: string, organization: string, signal: AbortSignal): Promise<CaptureInfo> {
    const { captures, server, assertUsable, makeRoom, log } = this.#parts;
    const startedAt = performance.now();
    const found = await this.#find(id, organization);
    if (found === undefined) throw new AppError('not_found', `there is no snapshot ${id}`);
    const manifest = openManifest(() => found.about);
    const names = found.files.map(({ name }) => name);
    assertCaptureFiles(names, id);
    assertUsable(manifest);
    await makeRoom(Math.ceil(found.data_bytes / MIB));
    await using partial = captures.begin();
    const { path } = partial;
    using stack = new DisposableStack();
    const image = this.#openImage(manifest.image.digest, stack);
    const made = makeFiles(path, names, stack);
    const files = Array.from(made, ([name, descriptor]) => ({
      name,
      descriptor,
      seed: name === IMAGE_NAME ? image?.descriptor : undefined,
    }));
    const transfer = { organization, captureId: id, about: '', files };
    const limits = { timeoutMs: FETCH_TIMEOUT_MS, signal };
    const fetched = await runTransfer(server.transferCommand('fetch'), { ...transfer, ...limits }, Fetched);
    if (image !== undefined && fetched.same.includes(IMAGE_NAME))
      replaceByLink(join(path, IMAGE_NAME), image.path);
    for (const name of names) freezeFile(join(path, name));
    await syncLater(new VmDirectory(path).overlays);
    await writeStoredMark(path, { organization, stored_bytes: found.stored_bytes });
    // A local copy that cannot be read.
    if (captures.has(id)) await captures.remove(id);
    await captures.publish(path, manifest, { isTrusted: false });
    const elapsed_ms = Math.round(performance.now() - startedAt);
    log.info({ capture_id: id, ...fetched, elapsed_ms }, 'capture fetched');
    return manifest.info;
  }

  /** Opens the image of a capture if this runner has one. Its bytes may differ: it was prepared on another machine. */
  #openImage(digest: string, stack: DisposableStack): { path: string; descriptor: number } | undefined {
    const { images, leases } = this.#parts;
    const image = images.find(digest);
    if (image === undefined) return undefined;
    stack.use(leases.open()).add(imageKey(digest));
    return { path: image.path, descriptor: openIn(stack, image.path, 'r') };
  }

  #find(id: string, organization: string): Promise<Found | undefined> {
    return findStored(this.#parts.server, organization, id).catch((error: unknown) => {
      throw describeFailure(error, id);
    });
  }

  #run<T>(id: string, kind: Kind, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new AppError('unavailable', 'the runner is ending');
    const abort = new AbortController();
    const done = this.#slots[kind].run(abort.signal, () => work(abort.signal));
    this.#running.set(id, { kind, abort, done });
    const forget = (): void => void this.#running.delete(id);
    return done.finally(forget).catch((error: unknown) => {
      throw describeFailure(error, id);
    });
  }

  async #stop(id: string): Promise<void> {
    const running = this.#running.get(id);
    running?.abort.abort(new AppError('unavailable', `the transfer of the snapshot ${id} was ended`));
    await running?.done.catch(() => undefined);
  }

  #assertShared(): void {
    if (this.#parts.isShared) return;
    throw new AppError(
      'invalid_state',
      'the object store is a directory of this machine, so snapshots are not stored in it; set COPPICE_OBJECT_STORE',
    );
  }
}

function describeFailure(error: unknown, id: string): unknown {
  if (!isDamaged(error)) return error;
  const message = `the snapshot ${id} is damaged in the object store: ${error.message}`;
  return new AppError('snapshot_unusable', message, { cause: error });
}

function replaceByLink(path: string, target: string): void {
  unlinkSync(path);
  linkSync(target, path);
}
