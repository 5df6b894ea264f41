/**
 * One persistent disk that this runner holds, for one VM.
 *
 *   guest ─► top overlay ◄─ seal ─ sealed overlays ◄─ drain, lowest first ─ version in the object store
 *
 *   seal    a new overlay on top; the former top is never written again, so it is the disk of one moment
 *   drain   uploads the lowest sealed overlay as the next version, puts the overlay above onto that, removes the file
 *   leave   the VM is gone: all overlays are drained, and the disk is released for another holder
 *
 * All overlays that are there make up the disk, whatever was interrupted: draining one again gives the same version, and
 * one is removed before the next is drained.
 */
import { dirname } from 'node:path';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { z } from 'zod';
import { syncLater } from '../../lib/files/durable-file.ts';
import { invariant } from '../../lib/invariant.ts';
import type { CapturedWorkspace, DiskAttachment } from '../../lib/protocol/disk-protocol.ts';
import { SerialQueue } from '../../lib/waiting/serial-queue.ts';
import { enterStep } from '../vm/steps.ts';
import type { WorkspaceDevice, WorkspaceSource, WorkspaceVersion } from '../vm/workspace-device.ts';
import {
  writeAttachmentRecord,
  writeAttachmentRecordLater,
  type AttachmentRecord,
} from './attachment-record.ts';
import {
  DiskManifest,
  DrainedOverlay,
  LoadedVersion,
  Nothing,
  ServerStatus,
  type DiskManifest as Manifest,
} from './block-requests.ts';
import { BlockServerError, type BlockRequest, type BlockServer } from './block-server.ts';
import type { OverlayDirectory } from './overlay-directory.ts';

/** Longer than the block server tries to upload one overlay. */
const DRAIN_TIMEOUT_MS = 15 * 60_000;
/** A change of the VMM's graph waits for all reads in progress, and the guest with it. */
const LONG_READ_MS = 500;
const STATUS_TIMEOUT_MS = 2000;

export interface AttachmentParts {
  server: Pick<BlockServer, 'ask'>;
  /** Id of this runner among all holders of disks. */
  runner: string;
  unit: string;
  directory: OverlayDirectory;
  log: Logger;
}

export interface AttachmentState {
  overlays: number[];
  /** Undefined for an attachment of an earlier runner process. */
  exportName?: string;
}

/** The VM that has the disk. */
export interface AttachedGuest {
  device: WorkspaceDevice;
  /** Stops the guest, so that it writes nothing; `reason` is for its callers. */
  hold: (reason: string) => Promise<void>;
  goOn: () => Promise<void>;
  /** Ends the VM: another holder has the disk. */
  end: () => void;
}

/** A seal in the making. Until it is disposed no other change of the disk's overlays begins. */
export interface Sealing extends AsyncDisposable {
  /** Seals the top. The guest may run or stand still. */
  push: () => Promise<void>;
  /** Number of the overlay that {@link push} seals. */
  readonly sealed: number;
}

export class Attachment {
  readonly #parts: AttachmentParts;
  #record: AttachmentRecord;
  /** Ascending. While there is a guest, the last one is the top and the others are sealed. */
  #overlays: readonly number[];
  /** The version that the lowest overlay is on. */
  #version: { number: number; exportName: string | undefined };
  #guest: AttachedGuest | undefined;
  #isLeft = false;
  #heldFor: string | undefined;
  #waitsFor: string | null = null;
  #kept: Promise<void> = Promise.resolve();
  readonly #graph = new SerialQueue();
  readonly #drains = new SerialQueue();

  constructor(parts: AttachmentParts, record: AttachmentRecord, { overlays, exportName }: AttachmentState) {
    this.#parts = parts;
    this.#record = record;
    this.#overlays = overlays;
    this.#version = { number: record.version, exportName };
  }

  get record(): Readonly<AttachmentRecord> {
    return this.#record;
  }

  get unit(): string {
    return this.#parts.unit;
  }

  /** The disk as a VM without any overlay of it gets it. */
  get source(): WorkspaceSource {
    const { number, exportName } = this.#version;
    invariant(exportName !== undefined && this.#overlays.length === 1, 'a new attachment has one overlay');
    const version: WorkspaceVersion = { number, exportName };
    return { version, overlay: this.#top, sizeBytes: this.#record.size_bytes };
  }

  get hasGuest(): boolean {
    return this.#guest !== undefined;
  }

  /** Bytes on this host that are not in the object store. */
  get dirtyBytes(): number {
    return this.#overlays.reduce((sum, number) => sum + this.#parts.directory.dataBytes(number), 0);
  }

  get topBytes(): number {
    return this.hasGuest ? this.#parts.directory.dataBytes(this.#top) : 0;
  }

  get sealedCount(): number {
    return this.hasGuest ? this.#overlays.length - 1 : this.#overlays.length;
  }

  /** Number of the sealed overlay below the top; 0 if there is none. */
  get highestSealed(): number {
    return (this.hasGuest ? this.#overlays.at(-2) : this.#overlays.at(-1)) ?? 0;
  }

  describe(): DiskAttachment {
    const { vm_id, version, drained_at } = this.#record;
    return {
      vm_id,
      state: this.#isLeft ? 'detaching' : this.hasGuest ? 'attached' : 'attaching',
      dirty_bytes: this.dirtyBytes,
      drained_version: version,
      drained_at,
      waits_for: this.#waitsFor ?? this.#heldFor ?? null,
    };
  }

  /** Notes why draining does not proceed; null when it does. */
  set waitsFor(reason: string | null) {
    this.#waitsFor = reason;
  }

  /** The guest has the disk now. */
  join(guest: AttachedGuest): void {
    this.#guest = guest;
  }

  /** Makes the first overlay, which is empty. It and the record survive a power loss when {@link kept} resolves. */
  start(): void {
    const { uid, size_bytes: sizeBytes } = this.#record;
    this.#parts.directory.create(this.#top, { sizeBytes, uid });
    this.#kept = this.#keepNew();
    this.#kept.catch(() => undefined);
  }

  /** Before this resolves, no program of the user may rely on what it has flushed. */
  get kept(): Promise<void> {
    return this.#kept;
  }

  /** The record comes last: without it the overlay never was part of a disk, and it names no overlay that is not whole. */
  async #keepNew(): Promise<void> {
    const { directory } = this.#parts;
    await directory.settle(this.#top);
    await writeAttachmentRecordLater(directory.path, this.#record);
    await syncLater(dirname(directory.path));
  }

  /** Joins a guest of an earlier runner process, and undoes what that process left unfinished. */
  async adopt(guest: AttachedGuest): Promise<void> {
    const { directory } = this.#parts;
    const { overlays: open, versions, top } = await guest.device.list();
    // The process was killed before the guest had the disk; its create is repeated from the start.
    if (top === undefined) throw new AppError('guest_unreachable', 'the VM has no disk');
    for (const number of [...new Set([...directory.list(), ...open])]
      .filter((each) => each > top)
      .toReversed())
      await this.#drop(guest.device, number);
    this.#overlays = directory.list();
    for (const number of this.#overlays.slice(0, -1)) directory.freeze(number);
    for (const version of versions)
      if (version < this.#version.number) await guest.device.closeVersion(version);
    this.#guest = guest;
  }

  /** Begins a seal while the guest runs, so that the seal itself takes little time. */
  async beginSeal(): Promise<Sealing> {
    const begun = Promise.withResolvers<Sealing>();
    const disposed = Promise.withResolvers<undefined>();
    const work = this.#graph.run(async () => {
      begun.resolve(await this.#openSeal(() => disposed.resolve(undefined)));
      await disposed.promise;
    });
    work.catch((error: unknown) => begun.reject(error));
    return begun.promise;
  }

  async #openSeal(onDisposed: () => void): Promise<Sealing> {
    const { directory } = this.#parts;
    const { device } = this.#attached;
    await this.#untilCalm();
    const [former, next] = [this.#top, this.#top + 1];
    const { uid, size_bytes: sizeBytes } = this.#record;
    await enterStep('disk.open');
    try {
      directory.create(next, { sizeBytes, uid });
      await directory.settle(next);
      await device.open(next);
      await directory.sync(former);
    } catch (error) {
      await this.#drop(device, next);
      throw error;
    }
    let isPushed = false;
    // A second disposal does nothing.
    return {
      sealed: former,
      push: async () => {
        await enterStep('disk.seal');
        await device.push(next);
        isPushed = true;
        this.#overlays = [...this.#overlays, next];
        directory.freeze(former);
      },
      [Symbol.asyncDispose]: async () => {
        try {
          if (!isPushed) await this.#drop(device, next);
        } finally {
          onDisposed();
        }
      },
    };
  }

  /** Seals the top of a running guest. Returns its number. */
  async seal(): Promise<number> {
    await using sealing = await this.beginSeal();
    await sealing.push();
    return sealing.sealed;
  }

  /**
   * Drains all overlays up to that one, and then runs `work`, before which no later overlay is drained: the head is the
   * version of that overlay. Throws {@link BlockServerError}.
   */
  drainThrough<T>(number: number, work: (version: number) => Promise<T>): Promise<T> {
    return this.#drains.run(async () => {
      // The record changes below.
      await this.#kept.catch(() => undefined);
      await this.#revert();
      for (let [lowest] = this.#overlays; lowest !== undefined && lowest <= number; [lowest] = this.#overlays)
        await this.#drainLowest(lowest);
      return work(this.#record.version);
    });
  }

  /** Seals and drains all that the guest has written. */
  async flush(): Promise<void> {
    await this.drainThrough(await this.seal(), async () => undefined);
  }

  /** Names the disk of the moment of a seal, so that its version is kept. Returns the version. */
  keep(sealed: number, name: string): Promise<CapturedWorkspace> {
    return this.drainThrough(sealed, async () => {
      const kept = await this.#ask({ op: 'snapshot', name }, DiskManifest);
      const { organization, disk } = this.#record;
      return { organization, disk, version: kept.version, size_bytes: kept.size_bytes };
    });
  }

  /** Makes new disks from the disk of the moment of a seal. Returns the versions that they begin with. */
  fork(sealed: number, disks: readonly string[]): Promise<number[]> {
    return this.drainThrough(sealed, async (version) => {
      const forks = disks.map((to) => this.#ask({ op: 'fork', version, to }, DiskManifest));
      const made = await Promise.all(forks).catch((error: unknown) => {
        throw explainFork(error);
      });
      return made.map((fork) => fork.version);
    });
  }

  /** Grows the disk. The file system in the guest does not grow. */
  async grow(sizeBytes: number): Promise<void> {
    const sealed = await this.seal();
    await this.drainThrough(sealed, async () => {
      await this.#ask({ op: 'grow', size_bytes: sizeBytes }, DiskManifest);
      this.#note({ size_bytes: sizeBytes });
      await this.#graph.run(() => this.#attached.device.grow(sizeBytes));
    });
  }

  /** The VM is gone. From here on nothing writes to the overlays, and none of them belongs to the VM's user. */
  leave(): void {
    this.#guest = undefined;
    this.#isLeft = true;
    this.#sealAll();
  }

  #sealAll(): void {
    this.#overlays = this.#parts.directory.list();
    for (const number of this.#overlays) this.#parts.directory.freeze(number);
  }

  /** Drains what is left and releases the disk. May be repeated. */
  async release(): Promise<void> {
    // Again, after a seal that was in progress when the VM ended.
    await this.#graph.run(async () => this.#sealAll());
    const highest = this.#overlays.at(-1) ?? 0;
    await this.drainThrough(highest, () => this.#ask({ op: 'release' }, DiskManifest));
    this.#parts.directory.remove();
  }

  /** Ends an attachment whose content is not wanted, or not this runner's any more. */
  discard(): void {
    const remove = (): void => this.#parts.directory.remove();
    void this.#kept.then(remove, remove);
  }

  /** Whether it may still turn out that the VM instance which this one is to replace keeps the disk. */
  get isReplacement(): boolean {
    return this.#record.replaces !== undefined;
  }

  /** The VM has the sandbox now: the disk is rolled back before anything is drained. */
  confirm(): void {
    this.#note({ replaces: undefined });
  }

  /** Rolls the disk back. Does nothing for a disk that is not to be rolled back. */
  async #revert(): Promise<void> {
    const { revert_to: version } = this.#record;
    if (version === undefined) return;
    const reverted = await this.#ask({ op: 'revert', version }, DiskManifest);
    this.#note({ revert_to: undefined, drained_at: new Date(reverted.drained_ms).toISOString() });
  }

  async #drainLowest(lowest: number): Promise<void> {
    const { directory, unit } = this.#parts;
    await enterStep('disk.drain');
    const drained = await this.#ask(
      {
        op: 'drain',
        overlay: directory.nameBelowParent(lowest),
        source: `${unit}-${lowest}`,
        keep_from: this.#version.number,
      },
      DrainedOverlay,
      { timeoutMs: DRAIN_TIMEOUT_MS },
    );
    await enterStep('disk.rebase');
    if (this.hasGuest) await this.#rebase(lowest, drained);
    this.#note({ version: drained.version, drained_at: new Date(drained.drained_ms).toISOString() });
    directory.drop(lowest);
    this.#overlays = this.#overlays.filter((number) => number !== lowest);
  }

  /** Puts the overlay above `lowest` onto the drained version. */
  async #rebase(lowest: number, { version: number }: Manifest): Promise<void> {
    const { export: exportName } = await this.#ask({ op: 'load', version: number }, LoadedVersion);
    const former = this.#version;
    await this.#graph.run(async () => {
      const guest = this.#guest;
      if (guest === undefined) return;
      await this.#untilCalm();
      const above = this.#overlays.find((each) => each > lowest);
      invariant(above !== undefined, 'the top is not drained while there is a guest');
      await guest.device.rebase(above, { number, exportName });
      this.#version = { number, exportName };
      await guest.device.closeOverlay(lowest);
      if (former.number !== number) await guest.device.closeVersion(former.number);
    });
    if (former.number !== number) await this.#ask({ op: 'unload', version: former.number }, Nothing);
  }

  async #drop(device: WorkspaceDevice, number: number): Promise<void> {
    await device.closeOverlay(number);
    this.#parts.directory.drop(number);
  }

  /** Returns the failure of the object store if nothing has succeeded since. */
  async findStoreFailure(): Promise<string | null> {
    const status = await this.#ask({ op: 'status' }, ServerStatus, { timeoutMs: STATUS_TIMEOUT_MS });
    const { store_ok_ms: okMs, store_error_ms: errorMs, store_error: message } = status;
    return errorMs !== null && (okMs === null || errorMs < okMs) ? message : null;
  }

  /** Throws `unavailable` while a read waits for the object store. */
  async #untilCalm(): Promise<void> {
    const status = await this.#ask({ op: 'status' }, ServerStatus, { timeoutMs: STATUS_TIMEOUT_MS });
    if (status.oldest_read_ms < LONG_READ_MS) return;
    throw new BlockServerError('unavailable', 'the object store does not answer reads of a disk');
  }

  /** Whether this runner still holds the disk, by its chain. */
  async isHeld(): Promise<boolean> {
    const head = await this.#ask({ op: 'stat' }, DiskManifest);
    return head.runner === this.#parts.runner && head.epoch === this.#record.epoch;
  }

  #ask<T>(request: BlockRequest, answer: z.ZodType<T>, how?: { timeoutMs: number }): Promise<T> {
    const { organization: org, disk, epoch } = this.#record;
    const { server, runner } = this.#parts;
    return server.ask({ org, disk, runner, epoch, ...request }, answer, how);
  }

  /** Stops the guest because nothing that it writes could be kept. */
  async hold(reason: string): Promise<void> {
    if (this.#heldFor !== undefined || this.#guest === undefined) return;
    this.#heldFor = reason;
    this.#parts.log.warn({ unit: this.unit, reason }, 'a VM is held');
    await this.#guest.hold(reason);
  }

  async goOn(): Promise<void> {
    if (this.#heldFor === undefined) return;
    this.#heldFor = undefined;
    this.#parts.log.info({ unit: this.unit }, 'a held VM continues');
    await this.#guest?.goOn();
  }

  get heldFor(): string | undefined {
    return this.#heldFor;
  }

  /** Another holder has the disk: what is on this host and not in the object store is lost. */
  lose(): void {
    this.#parts.log.error(
      { unit: this.unit, disk: this.#record.disk, dirty_bytes: this.dirtyBytes },
      'a disk was taken by another holder; what its VM wrote since the last drain is discarded',
    );
    this.#guest?.end();
  }

  #note(change: Partial<AttachmentRecord>): void {
    this.#record = { ...this.#record, ...change };
    writeAttachmentRecord(this.#parts.directory.path, this.#record);
  }

  get #attached(): AttachedGuest {
    if (this.#guest === undefined) throw new AppError('invalid_state', 'the disk is not attached');
    return this.#guest;
  }

  get #top(): number {
    const top = this.#overlays.at(-1);
    invariant(top !== undefined, 'an attached disk has at least one overlay');
    return top;
  }
}

/** A disk that exists was made by an attempt that was interrupted, so it is of another moment than the memory. */
function explainFork(error: unknown): unknown {
  if (!(error instanceof BlockServerError) || error.reason !== 'exists') return error;
  return new AppError('guest_unreachable', 'the fork was interrupted; try again', { cause: error });
}
