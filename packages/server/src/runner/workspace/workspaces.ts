/**
 * The persistent disks that this runner holds, by disk and by VM instance, and the block server that keeps their data.
 *
 *   prepare ─► bind ─► the VM's guest has the disk ─► leave ─► drained and released
 *   a runner that starts: adopted with its VM, or left
 */
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { CapturedWorkspace, VmWorkspace } from '../../lib/protocol/disk-protocol.ts';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { SerialQueue } from '../../lib/waiting/serial-queue.ts';
import { invariant } from '../../lib/invariant.ts';
import { openRunnerId } from '../identity/runner-id.ts';
import type { WorkspaceFiles, WorkspaceSource } from '../vm/workspace-device.ts';
import { Attachment } from './attachment.ts';
import type { AttachedGuest, AttachmentState } from './attachment.types.ts';
import { findAttachmentRecord, type AttachmentRecord } from './attachment-record.ts';
import { DiskManifest, LoadedVersion, Nothing, TakenDisk } from './block-requests.ts';
import { BlockServerError, type BlockServer } from './block-server.ts';
import { DrainLoop } from './drain-loop.ts';
import { OverlayDirectory } from './overlay-directory.ts';
import type { DiskPlace } from './pending-disk.ts';
import { LEASE_MS, RunnerLease } from './runner-lease.ts';

/** How long a VM waits for the end of the VM that had the disk before it. */
const DETACH_WAIT_MS = 30_000;
/** A disk that another service holds is taken when its lease has ended. */
const TAKE_TIMEOUT_MS = 2 * LEASE_MS;
const UNIT = /^u[0-9a-f]{16}$/u;
/** Number of the overlay that a guest writes to while it unmounts; that of the disk that it then gets is higher. */
const LENT_OVERLAY = 0;
export const OVERLAY_AFTER_LENT = LENT_OVERLAY + 1;
const LEASE_DOUBT = 'the lease of its disk cannot be renewed: the object store does not answer';

export interface WorkspacesOptions {
  server: BlockServer;
  /** Holds one directory for each VM, on the same file system as the scratch disks. */
  directory: string;
  /** Directory of the block server's socket. */
  serverDirectory: string;
  /** Most bytes of one disk that wait on this host. */
  maxDirtyBytes: number;
  log: Logger;
}

/** A disk that this runner has taken, before it is clear which VM instance gets it. */
export interface TakenWorkspace {
  asked: VmWorkspace;
  vmId: string;
  epoch: number;
  version: number;
  sizeBytes: number;
  exportName: string;
  drainedAt: string;
  isRecovered: boolean;
}

interface Held {
  attachment: Attachment;
  loop: DrainLoop;
}

export class Workspaces implements Disposable {
  readonly #options: WorkspacesOptions;
  readonly #runner: string;
  readonly #held = new Map<string, Held>();
  /** Keys of disks that are taken for a VM which does not have them yet. */
  readonly #taking = new Set<string>();
  readonly #lease: RunnerLease;
  readonly #compactions = new SerialQueue();
  /** Attachments of earlier runner processes that are neither adopted nor left yet. */
  readonly #found = new Map<string, AttachmentRecord>();
  /** VM instances with a disk whose record cannot be read. Nothing of them is removed. */
  readonly #unreadable = new Set<string>();

  constructor(options: WorkspacesOptions) {
    const { server, directory, log } = options;
    this.#options = options;
    mkdirSync(directory, { recursive: true, mode: 0o711 });
    this.#runner = openRunnerId(directory);
    this.#lease = new RunnerLease({
      server,
      runner: this.#runner,
      path: join(directory, 'lease.json'),
      isNeeded: () => this.#held.size > 0 || this.#taking.size > 0,
      onDoubt: () => this.#forEach((attachment) => attachment.hold(LEASE_DOUBT)),
      onCertain: () => this.#forEach((attachment) => this.#checkHeld(attachment)),
      log,
    });
    this.#findLeftovers();
  }

  /** Id of this runner among all holders of disks. */
  get runner(): string {
    return this.#runner;
  }

  get attachments(): Attachment[] {
    return [...this.#held.values()].map(({ attachment }) => attachment);
  }

  find(organization: string, disk: string): Attachment | undefined {
    return this.attachments.find(
      ({ record, isReplacement }) => !isReplacement && keyOf(record) === keyOf({ organization, disk }),
    );
  }

  /** Returns the attachment that is still to be rolled back to that version. */
  findReverting(organization: string, disk: string, version: number): Attachment | undefined {
    return this.attachments.find(
      ({ record }) => record.revert_to === version && keyOf(record) === keyOf({ organization, disk }),
    );
  }

  findOfUnit(unit: string): Attachment | undefined {
    return this.#held.get(unit)?.attachment;
  }

  /** Makes the directory that a VM needs, with or without a disk. */
  makePlace(unit: string): WorkspaceFiles {
    const place = this.#directoryOf(unit);
    place.make();
    return { overlayDirectory: place.overlays, serverDirectory: this.#options.serverDirectory };
  }

  /**
   * Takes a disk for a VM, and waits until a VM that had it is gone. Throws `disk_in_use`, `disk_changed`, `not_found`, or
   * `unavailable`.
   */
  async take(asked: VmWorkspace, vmId: string): Promise<TakenWorkspace> {
    const { organization: org, disk } = asked;
    const key = keyOf(asked);
    if (this.#taking.has(key)) throw new AppError('disk_in_use', 'another sandbox is getting the disk');
    this.#taking.add(key);
    try {
      await this.#awaitReleased(asked);
      await this.#lease.renew();
      const { server } = this.#options;
      const request = { op: 'take', org, disk, runner: this.#runner, lease_ms: LEASE_MS };
      const taken = await server.ask(request, TakenDisk, { timeoutMs: TAKE_TIMEOUT_MS });
      const { epoch, version, size_bytes: sizeBytes } = taken;
      try {
        const loaded = await server.ask({ op: 'load', org, disk, version }, LoadedVersion);
        await this.#assertUnchanged(asked, loaded.root);
        const drainedAt = new Date(taken.drained_ms).toISOString();
        // What this runner itself did not release it has drained: it is the disk of a VM that never came to be.
        const isRecovered = taken.recovered && taken.previous.runner !== this.#runner;
        return { asked, vmId, epoch, version, sizeBytes, exportName: loaded.export, drainedAt, isRecovered };
      } catch (error) {
        await this.#giveBack({ organization: org, disk, epoch, version }).catch((cause: unknown) =>
          this.#options.log.warn({ err: cause, disk }, 'a disk that no VM got is not released'),
        );
        throw error;
      }
    } catch (error) {
      this.#taking.delete(key);
      throw error;
    }
  }

  /** Gives a taken disk up that no VM got. */
  async abandon({ asked, epoch, version }: TakenWorkspace): Promise<void> {
    try {
      await this.#giveBack({ ...asked, epoch, version });
    } finally {
      this.#taking.delete(keyOf(asked));
    }
  }

  async #giveBack({
    organization: org,
    disk,
    epoch,
    version,
  }: {
    organization: string;
    disk: string;
    epoch: number;
    version: number;
  }): Promise<void> {
    const { server } = this.#options;
    await server.ask({ op: 'release', org, disk, runner: this.#runner, epoch }, DiskManifest);
    await server.ask({ op: 'unload', org, disk, version }, Nothing);
  }

  /** Releases a disk that an earlier process took for a VM which never came to be. */
  async releaseUnused(key: { organization: string; disk: string }): Promise<void> {
    const { organization: org, disk } = key;
    const { server } = this.#options;
    const head = await server.ask({ op: 'stat', org, disk }, DiskManifest).catch((error: unknown) => {
      if (error instanceof BlockServerError && error.reason === 'no_disk') return undefined;
      throw error;
    });
    if (head?.runner !== this.#runner || this.#taking.has(keyOf(key))) return;
    await server.ask({ op: 'release', org, disk, runner: this.#runner, epoch: head.epoch }, DiskManifest);
  }

  /** Gives a taken disk to a VM instance, with an empty overlay. From here on {@link leave} releases it. */
  bind(taken: TakenWorkspace, { unit, uid, firstOverlay = 0 }: DiskPlace): Attachment {
    const { asked, vmId, epoch, version, sizeBytes, exportName, drainedAt } = taken;
    const record: AttachmentRecord = {
      format: 1,
      organization: asked.organization,
      disk: asked.disk,
      vm_id: vmId,
      uid,
      epoch,
      size_bytes: sizeBytes,
      version,
      drained_at: drainedAt,
      durability: asked.durability,
    };
    return this.#begin(unit, record, { overlays: [firstOverlay], exportName });
  }

  /**
   * Gives a VM instance a version to write to, of which nothing is kept: its guest has it mounted. Returns undefined if the
   * version is gone.
   */
  async lend(captured: CapturedWorkspace, { unit, uid }: DiskPlace): Promise<WorkspaceSource | undefined> {
    const { organization: org, disk, version, size_bytes: sizeBytes } = captured;
    try {
      const request = { op: 'load', org, disk, version };
      const { export: exportName } = await this.#options.server.ask(request, LoadedVersion);
      this.#directoryOf(unit).create(LENT_OVERLAY, { sizeBytes, uid });
      return { version: { number: version, exportName }, overlay: LENT_OVERLAY, sizeBytes };
    } catch (error) {
      if (error instanceof BlockServerError && ['no_disk', 'no_data'].includes(error.reason))
        return undefined;
      throw error;
    }
  }

  /** The VM instance has unmounted what {@link lend} gave it, and uses it no more. */
  takeBack(unit: string): void {
    this.#directoryOf(unit).drop(LENT_OVERLAY);
  }

  /**
   * Gives a VM instance the disk as it was in a kept version, to replace the instance that has the disk. Until
   * {@link replaced} the other one keeps it.
   */
  async bindReplacement(old: Attachment, version: number, { unit, uid }: DiskPlace): Promise<Attachment> {
    const { organization: org, disk } = old.record;
    const loaded = await this.#options.server.ask({ op: 'load', org, disk, version }, LoadedVersion);
    const size_bytes = loaded.size_bytes;
    const record = { ...old.record, uid, size_bytes, version, revert_to: version, replaces: old.unit };
    return this.#begin(unit, record, { overlays: [0], exportName: loaded.export });
  }

  /** The replacement has the sandbox. Nothing of the other VM instance is drained any more. Never throws. */
  replaced(replacement: Attachment): void {
    const { replaces } = replacement.record;
    replacement.confirm(replaces === undefined ? undefined : this.#discard(replaces));
  }

  #begin(unit: string, record: AttachmentRecord, state: AttachmentState): Attachment {
    const place = this.#directoryOf(unit);
    place.make();
    const attachment = this.#enter(unit, record, state);
    this.#taking.delete(keyOf(record));
    attachment.start();
    return attachment;
  }

  /**
   * Adopts the disk of a VM of an earlier runner process; the object store may be away. Returns undefined if the VM has
   * none.
   */
  async adopt(unit: string, guest: AttachedGuest): Promise<Attachment | undefined> {
    if (this.#unreadable.has(unit)) throw new AppError('internal', 'the record of its disk cannot be read');
    const record = this.#found.get(unit);
    if (record === undefined) return undefined;
    this.#found.delete(unit);
    // Nothing is known about the time since the earlier process renewed the lease.
    this.#lease.doubt();
    const attachment = this.#enter(unit, record, { overlays: [] });
    await attachment.adopt(guest);
    // Its VM has the sandbox, or it would not be adopted.
    if (attachment.isReplacement) attachment.confirm();
    return attachment;
  }

  /** The VM instance is gone, or never came to be. Its disk is drained and released in the background. */
  leave(unit: string): void {
    const held = this.#held.get(unit);
    if (held?.attachment.isReplacement === true) void this.#discard(unit);
    else if (held !== undefined) held.loop.leave();
    else if (!this.#found.has(unit)) this.#remove(unit);
  }

  #remove(unit: string): void {
    if (!this.#unreadable.has(unit)) this.#directoryOf(unit).remove();
  }

  /** Resolves when nothing of it is drained any more. Never rejects. */
  async #discard(unit: string): Promise<void> {
    const held = this.#held.get(unit);
    this.#held.delete(unit);
    held?.loop.close();
    await held?.attachment.discard();
  }

  /**
   * Leaves the disks of VMs that were not adopted, and removes what VMs without a disk have left. `superseded` are VM
   * instances that another one has replaced.
   */
  leaveUnadopted({ superseded, live }: { superseded: ReadonlySet<string>; live: ReadonlySet<string> }): void {
    for (const [unit, record] of this.#found) {
      this.#found.delete(unit);
      const isUnconfirmed = record.replaces !== undefined && !superseded.has(record.replaces);
      if (superseded.has(unit) || isUnconfirmed) this.#remove(unit);
      else {
        const attachment = this.#enter(unit, record, { overlays: [] });
        // On disk too: the record of the VM, which says the same, is removed before all is drained.
        if (attachment.isReplacement) attachment.confirm();
        this.leave(unit);
      }
    }
    for (const unit of readdirSync(this.#options.directory))
      if (UNIT.test(unit) && !live.has(unit) && !this.#held.has(unit)) this.#remove(unit);
  }

  /** The VMs keep their disks; the next runner process adopts them. */
  [Symbol.dispose](): void {
    this.#lease[Symbol.dispose]();
    for (const { loop } of this.#held.values()) loop.close();
    this.#options.server[Symbol.dispose]();
  }

  #enter(unit: string, record: AttachmentRecord, state: AttachmentState): Attachment {
    const { server, log, maxDirtyBytes } = this.#options;
    const directory = this.#directoryOf(unit);
    const attachment = new Attachment({ server, runner: this.#runner, unit, directory, log }, record, state);
    const onReleased = (): void => {
      if (this.#held.get(unit)?.attachment === attachment) this.#held.delete(unit);
      log.info({ unit, disk: record.disk }, 'disk released');
    };
    const compactions = this.#compactions;
    const loop = new DrainLoop({ attachment, maxDirtyBytes, compactions, onReleased, log });
    this.#held.set(unit, { attachment, loop });
    return attachment;
  }

  /** Waits for a disk that a VM of this runner is leaving. */
  async #awaitReleased(asked: VmWorkspace): Promise<void> {
    for (;;) {
      const held = [...this.#held.values()].find(
        ({ attachment }) => keyOf(attachment.record) === keyOf(asked),
      );
      if (held === undefined) return;
      const { vm_id, state, dirty_bytes, waits_for } = held.attachment.describe();
      if (state !== 'detaching') throw new AppError('disk_in_use', `the sandbox ${vm_id} has the disk`);
      const wait = withDeadline('the detaching of the disk', DETACH_WAIT_MS, held.loop.released);
      await wait.catch((error: unknown) => {
        const why = waits_for === null ? '' : `: ${waits_for}`;
        const message = `${dirty_bytes} bytes of the disk are still to be written to the object store${why}`;
        throw new AppError('disk_in_use', message, { cause: error });
      });
    }
  }

  /** Throws `disk_changed` if the guest's mounted version is not the content of the disk any more. */
  async #assertUnchanged({ organization: org, disk, version }: VmWorkspace, root: string): Promise<void> {
    if (version === undefined) return;
    const { server } = this.#options;
    const mounted = await server.ask({ op: 'load', org, disk, version }, LoadedVersion);
    await server.ask({ op: 'unload', org, disk, version }, Nothing);
    if (mounted.root === root) return;
    throw new AppError('disk_changed', 'the disk was written to since the sandbox was hibernated');
  }

  async #checkHeld(attachment: Attachment): Promise<void> {
    if (await attachment.isHeld()) {
      await attachment.goOn(LEASE_DOUBT);
    } else attachment.lose();
  }

  async #forEach(work: (attachment: Attachment) => Promise<void>): Promise<void> {
    const results = await Promise.allSettled(this.attachments.map(work));
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  #findLeftovers(): void {
    for (const unit of readdirSync(this.#options.directory)) {
      if (!UNIT.test(unit)) continue;
      try {
        const record = findAttachmentRecord(this.#directoryOf(unit).path);
        if (record !== undefined) this.#found.set(unit, record);
      } catch (error) {
        // One disk must not keep the service from starting. Its data stays for the operator.
        this.#unreadable.add(unit);
        this.#options.log.error({ err: error, unit }, 'the record of a disk cannot be read');
      }
    }
  }

  #directoryOf(unit: string): OverlayDirectory {
    invariant(UNIT.test(unit), `${unit} is not the name of a VM instance`);
    return new OverlayDirectory(this.#options.directory, unit);
  }
}

function keyOf({ organization, disk }: { organization: string; disk: string }): string {
  return `${organization}/${disk}`;
}
