/**
 * One persistent disk that this runner holds, for one VM.
 *
 *   guest ─► top overlay ◄─ seal ─ sealed overlays ◄─ drain, lowest first ─ version in the object store
 *
 *   seal    a new overlay on top; the former top is never written again, so it is the disk of one moment
 *   drain   uploads the lowest sealed overlay as the next version, puts the overlay above onto that, removes the file
 *   compact moves what is left of mostly unused segments into a version with the same content
 *   leave   the VM is gone: all overlays are drained, and the disk is released for another holder
 *
 * All overlays that are there make up the disk, whatever was interrupted: draining one again gives the same version, and
 * one is removed before the next is drained.
 */
import { AppError } from '@coppice/contract';
import type { z } from 'zod';
import { invariant } from '../../lib/invariant.ts';
import type { DiskAttachment } from '../../lib/protocol/disk-protocol.ts';
import { SerialQueue } from '../../lib/waiting/serial-queue.ts';
import { enterStep } from '../vm/steps.ts';
import type { WorkspaceDevice, WorkspaceSource, WorkspaceVersion } from '../vm/workspace-device.ts';
import { writeAttachmentRecord, type AttachmentRecord } from './attachment-record.ts';
import {
  DiskManifest,
  DrainedOverlay,
  LoadedVersion,
  Nothing,
  type DiskManifest as Manifest,
} from './block-requests.ts';
import { BlockServerError, type BlockRequest } from './block-server.ts';
import { findSparse, moveOut, type CompactionOutcome } from './compaction.ts';
import { GuestHold } from './guest-hold.ts';
import type { DiskServer } from './disk-moments.ts';
import { assertCalm } from './store-health.ts';
import { keepNew } from './overlay-directory.ts';
import { reserveMoment, type SealedMoment } from './sealed-moment.ts';
import type { AttachedGuest, AttachmentParts, AttachmentState, Sealing } from './attachment.types.ts';

/** Longer than the block server tries to upload one overlay. */
const DRAIN_TIMEOUT_MS = 15 * 60_000;
/** The VMM opens them all, so callers that seal again and again while the store is away must not add more. */
const MAX_SEALED = 16;

export class Attachment {
  readonly #parts: AttachmentParts;
  #record: AttachmentRecord;
  /** Ascending. While there is a guest, the last one is the top and the others are sealed. */
  #overlays: readonly number[];
  /** The version that the lowest overlay is on. */
  #version: { number: number; exportName: string | undefined };
  #guest: AttachedGuest | undefined;
  #isLeft = false;
  #isDiscarded = false;
  /** Whether the VMM may have changed the graph in a call that failed: it has to be asked. */
  #isUnsettled = false;
  /** Settles when nothing of the attachment before this one is drained any more. */
  #predecessor: Promise<void> = Promise.resolve();
  #kept: Promise<void> = Promise.resolve();
  readonly #hold = new GuestHold(() => this.#guest);
  readonly #graph = new SerialQueue();
  readonly #drains = new SerialQueue();

  /** The guest is being hibernated. It continues only on a version of that name, so the disk is not compacted any more. */
  isFinal = false;

  /** Why draining does not proceed; null while it does. */
  waitsFor: string | null = null;

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

  /** Whether anything but the top of a guest's disk is to be drained, or the disk to be rolled back. */
  get mustDrain(): boolean {
    return this.sealedCount > 0 || this.#record.revert_to !== undefined;
  }

  /** Number of the sealed overlay below the top; -1 if there is none. */
  get highestSealed(): number {
    return (this.hasGuest ? this.#overlays.at(-2) : this.#overlays.at(-1)) ?? -1;
  }

  describe(): DiskAttachment {
    const { vm_id, version, drained_at } = this.#record;
    return {
      vm_id,
      state: this.#isLeft ? 'detaching' : this.hasGuest ? 'attached' : 'attaching',
      dirty_bytes: this.dirtyBytes,
      drained_version: version,
      drained_at,
      waits_for: this.waitsFor ?? this.heldFor ?? null,
    };
  }

  /** The guest has the disk now. */
  join(guest: AttachedGuest): void {
    this.#guest = guest;
    // A hold may have begun while the VM got the disk.
    this.#hold
      .order()
      .catch((error: unknown) => this.#parts.log.warn({ err: error, unit: this.unit }, 'a VM is not held'));
  }

  /** Makes the first overlay, which is empty. It and the record survive a power loss when {@link kept} resolves. */
  start(): void {
    const { uid, size_bytes: sizeBytes } = this.#record;
    this.#parts.directory.create(this.#top, { sizeBytes, uid });
    this.#kept = keepNew(this.#parts.directory, this.#top, this.#record);
    this.#kept.catch(() => undefined);
  }

  /** Before this resolves, no program of the user may rely on what it has flushed. */
  get kept(): Promise<void> {
    return this.#kept;
  }

  /** Joins a guest of an earlier runner process, and undoes what that process left unfinished. */
  async adopt(guest: AttachedGuest): Promise<void> {
    const { versions } = await this.#settle(guest.device);
    for (const version of versions)
      if (version < this.#version.number) await guest.device.closeVersion(version);
    this.join(guest);
  }

  /** Takes the overlays as the VMM has them, and removes those that are not part of the disk. */
  async #settle(device: WorkspaceDevice): Promise<{ versions: number[] }> {
    const { directory } = this.#parts;
    const { overlays: open, versions, top } = await device.list();
    // The process was killed before the guest had the disk; its create is repeated from the start.
    if (top === undefined) throw new AppError('guest_unreachable', 'the VM has no disk');
    const above = [...new Set([...directory.list(), ...open])].filter((each) => each > top);
    for (const number of above.toReversed()) await this.#drop(device, number);
    this.#overlays = directory.list();
    for (const number of this.#overlays.slice(0, -1)) directory.freeze(number);
    this.#isUnsettled = false;
    return { versions };
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
    const { directory, log } = this.#parts;
    const { device } = this.#attached;
    if (this.sealedCount >= MAX_SEALED)
      throw new BlockServerError('unavailable', 'the object store has not taken what was sealed before');
    await assertCalm(this.server);
    if (this.#isUnsettled) await this.#settle(device);
    const [former, next] = [this.#top, this.#top + 1];
    const { uid, size_bytes: sizeBytes } = this.#record;
    // A failure is logged: the next seal asks the VMM what became of the overlay.
    const drop = (): Promise<void> =>
      this.#drop(device, next).catch((error: unknown) =>
        log.warn({ err: error, unit: this.unit, overlay: next }, 'an overlay is not removed'),
      );
    await enterStep('disk.open');
    try {
      directory.create(next, { sizeBytes, uid });
      await directory.settle(next);
      await device.open(next);
      await directory.sync(former);
    } catch (error) {
      await drop();
      throw error;
    }
    let isPushed = false;
    // A second disposal does nothing.
    return {
      push: async () => {
        await enterStep('disk.seal');
        await this.#push(device, { former, next });
        isPushed = true;
        return reserveMoment(this.#drains, (work) => this.#drainTo(former, work));
      },
      [Symbol.asyncDispose]: async () => {
        if (!isPushed) await drop();
        onDisposed();
      },
    };
  }

  async #push(device: WorkspaceDevice, { former, next }: { former: number; next: number }): Promise<void> {
    // A push that is not answered in time may still happen.
    this.#isUnsettled = true;
    await device.push(next);
    this.#overlays = [...this.#overlays, next];
    this.#isUnsettled = false;
    this.#parts.directory.freeze(former);
  }

  /** Seals the top of a running guest. The caller disposes the result. */
  async seal(): Promise<SealedMoment> {
    await using sealing = await this.beginSeal();
    return await sealing.push();
  }

  /** Drains all overlays up to that one. Throws {@link BlockServerError}. */
  drainThrough(number: number): Promise<void> {
    return this.#drains.run(() => this.#drainTo(number, async () => undefined));
  }

  async #drainTo<T>(number: number, work: (version: number) => Promise<T>): Promise<T> {
    // The record changes below.
    await this.#kept.catch(() => undefined);
    await this.#revert();
    for (let [lowest] = this.#overlays; lowest !== undefined && lowest <= number; [lowest] = this.#overlays)
      await this.#drainLowest(lowest);
    this.#assertWanted();
    return work(this.#record.version);
  }

  /** Seals and drains all that the guest has written. */
  async flush(): Promise<void> {
    using moment = await this.seal();
    await moment.drain(async () => undefined);
  }

  /** Grows the disk. The file system in the guest does not grow. */
  async grow(sizeBytes: number): Promise<void> {
    using moment = await this.seal();
    await moment.drain(async () => {
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
    await this.#drains.run(() => this.#drainTo(highest, () => this.#ask({ op: 'release' }, DiskManifest)));
    this.#parts.directory.remove();
    void this.#unload(this.#version.number);
  }

  /**
   * Ends an attachment whose content is not wanted, or not this runner's any more. Resolves when nothing of it is drained
   * any more.
   */
  async discard(): Promise<void> {
    this.#isDiscarded = true;
    await this.#kept.catch(() => undefined);
    try {
      this.#parts.directory.remove();
    } catch (error) {
      // The next process removes it.
      this.#parts.log.error({ err: error, unit: this.unit }, 'overlays of a disk are not removed');
    }
    await this.#drains.run(async () => undefined);
    void this.#unload(this.#version.number);
  }

  #assertWanted(): void {
    if (this.#isDiscarded) throw new AppError('invalid_state', 'the disk is not attached any more');
  }

  /** Whether it may still turn out that the VM instance which this one is to replace keeps the disk. */
  get isReplacement(): boolean {
    return this.#record.replaces !== undefined;
  }

  /** The VM has the sandbox now: the disk is rolled back before anything is drained. Never throws. */
  confirm(predecessor?: Promise<void>): void {
    const { replaces: _, ...confirmed } = this.#record;
    this.#record = confirmed;
    if (predecessor !== undefined) this.#predecessor = predecessor;
    try {
      this.#note({});
    } catch (error) {
      // Until it is written with the next change, the record of the VM says the same.
      this.#parts.log.warn({ err: error, unit: this.unit }, 'the record of a disk was not updated');
    }
  }

  /** Rolls the disk back, if that is still to be done. */
  revert(): Promise<void> {
    return this.#drains.run(() => this.#revert());
  }

  /** The guest reads the reverted version afterwards: the one that it is a copy of need not be kept. */
  async #revert(): Promise<void> {
    await this.#predecessor;
    this.#assertWanted();
    const { revert_to: version } = this.#record;
    if (version === undefined) return;
    const reverted = await this.#ask({ op: 'revert', version }, DiskManifest);
    const { size_bytes } = reverted;
    const isLarger = size_bytes > this.#record.size_bytes;
    await this.#follow(reverted, { revert_to: undefined, size_bytes });
    if (isLarger && this.hasGuest) await this.#graph.run(() => this.#attached.device.grow(size_bytes));
  }

  /** Frees space in the store. Drains wait for it, but not for the search. Throws {@link BlockServerError}. */
  async compact(): Promise<CompactionOutcome> {
    const segments = await findSparse(this.server);
    if (segments.length === 0) return 'nothing';
    return this.#drains.run(async () => {
      const isBusy = this.sealedCount > 0 || this.#record.revert_to !== undefined;
      if (isBusy || this.isFinal || this.#isLeft || this.#isDiscarded) return 'later';
      await this.#kept;
      const compacted = await moveOut(this.server, segments);
      if (compacted === undefined) return 'nothing';
      await this.#follow(compacted);
      return 'moved';
    });
  }

  /** Continues on a version with the same content, or that the disk was rolled back to. */
  async #follow(made: Manifest, change: Partial<AttachmentRecord> = {}): Promise<void> {
    if (this.hasGuest) await this.#rebase(made, { onto: () => this.#overlays[0] });
    this.#note({ ...change, version: made.version, drained_at: new Date(made.drained_ms).toISOString() });
  }

  async #drainLowest(lowest: number): Promise<void> {
    const { directory, unit } = this.#parts;
    await enterStep('disk.drain');
    this.#assertWanted();
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
    if (this.hasGuest)
      await this.#rebase(drained, {
        onto: () => this.#overlays.find((each) => each > lowest),
        closing: lowest,
      });
    // Before the record, which cannot be written while the host's disk is full.
    directory.drop(lowest);
    this.#overlays = this.#overlays.filter((number) => number !== lowest);
    this.#note({ version: drained.version, drained_at: new Date(drained.drained_ms).toISOString() });
  }

  /** Puts an overlay, and all above it, onto a version. */
  async #rebase(
    { version: number }: Manifest,
    { onto, closing }: { onto: () => number | undefined; closing?: number },
  ): Promise<void> {
    const { export: exportName } = await this.#ask({ op: 'load', version: number }, LoadedVersion);
    const former = this.#version;
    await this.#graph.run(async () => {
      const guest = this.#guest;
      if (guest === undefined) return;
      await assertCalm(this.server);
      const overlay = onto();
      invariant(overlay !== undefined, 'the top is not drained while there is a guest');
      await guest.device.rebase(overlay, { number, exportName });
      this.#version = { number, exportName };
      if (closing !== undefined) await guest.device.closeOverlay(closing);
      if (former.number !== number) await guest.device.closeVersion(former.number);
    });
    const unused = this.#version.number === number ? former.number : number;
    if (former.number !== number) await this.#unload(unused);
  }

  /** The block server forgets a version that no VM needs. It loads it again if one connects. Never rejects. */
  async #unload(version: number): Promise<void> {
    try {
      await this.#ask({ op: 'unload', version }, Nothing);
    } catch (error) {
      this.#parts.log.debug({ err: error, unit: this.unit, version }, 'a version stays loaded');
    }
  }

  async #drop(device: WorkspaceDevice, number: number): Promise<void> {
    this.#isUnsettled = true;
    await device.closeOverlay(number);
    this.#parts.directory.drop(number);
    this.#isUnsettled = false;
  }

  /** Whether this runner still holds the disk, by its chain. */
  async isHeld(): Promise<boolean> {
    const head = await this.#ask({ op: 'stat' }, DiskManifest);
    return head.runner === this.#parts.runner && head.epoch === this.#record.epoch;
  }

  /** The block server, for requests about this disk. */
  get server(): DiskServer {
    return (request, answer, how) => this.#ask(request, answer, how);
  }

  #ask<T>(request: BlockRequest, answer: z.ZodType<T>, how?: { timeoutMs: number }): Promise<T> {
    const { organization: org, disk, epoch } = this.#record;
    const { server, runner } = this.#parts;
    return server.ask({ org, disk, runner, epoch, ...request }, answer, how);
  }

  /** Stops the guest because nothing that it writes could be kept. Repeat it until {@link goOn}: a VM may not obey. */
  async hold(reason: string): Promise<void> {
    if (!this.#hold.has(reason)) this.#parts.log.warn({ unit: this.unit, reason }, 'a VM is held');
    await this.#hold.add(reason);
  }

  async goOn(reason: string): Promise<void> {
    if (this.#hold.has(reason))
      this.#parts.log.info({ unit: this.unit, reason }, 'a reason to hold a VM is gone');
    await this.#hold.delete(reason);
  }

  isHeldFor(reason: string): boolean {
    return this.#hold.has(reason);
  }

  get heldFor(): string | undefined {
    return this.#hold.reason;
  }

  /** Another holder has the disk: what is on this host and not in the object store is lost. */
  lose(): void {
    this.#parts.log.error(
      { unit: this.unit, disk: this.#record.disk, dirty_bytes: this.dirtyBytes },
      'a disk was taken by another holder; what its VM wrote since the last drain is discarded',
    );
    this.#guest?.end();
  }

  /** Not in memory either if it cannot be written: the next process must not know less than this one acted on. */
  #note(change: Partial<AttachmentRecord>): void {
    const record = { ...this.#record, ...change };
    writeAttachmentRecord(this.#parts.directory.path, record);
    this.#record = record;
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
