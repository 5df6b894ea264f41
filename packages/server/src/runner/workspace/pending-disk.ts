/** A persistent disk that a VM will get. It is taken while the VM is being prepared, so that its create takes no longer. */
import type { CapturedWorkspace, MountedWorkspace, VmWorkspace } from '../../lib/protocol/disk-protocol.ts';
import type { WorkspaceSource } from '../vm/workspace-device.ts';
import type { Attachment } from './attachment.ts';
import type { TakenWorkspace, Workspaces } from './workspaces.ts';

export interface BoundDisk {
  attachment: Attachment;
  mounted: MountedWorkspace;
}

/** A disk that a VM instance gets when it exists. */
export interface DiskForVm {
  /** Whether the guest has the disk mounted, because it continues from a capture. */
  readonly isMounted: boolean;
  /** Old content that the guest must unmount before it gets the disk; absent if it has none mounted. */
  readonly left?: LeftDisk | undefined;
  bind(place: DiskPlace): Promise<BoundDisk>;
}

/** A VM instance, and the number of its first overlay; 0 by default. */
export interface DiskPlace {
  unit: string;
  uid: number;
  firstOverlay?: number;
}

/** The disk of a capture of which the guest will keep nothing. */
export class LeftDisk {
  readonly #workspaces: Workspaces;
  readonly #captured: CapturedWorkspace;

  constructor(workspaces: Workspaces, captured: CapturedWorkspace) {
    this.#workspaces = workspaces;
    this.#captured = captured;
  }

  /** Gives the VM instance the old content, to write to while it unmounts it. Undefined if the content is gone. */
  lend(place: DiskPlace): Promise<WorkspaceSource | undefined> {
    return this.#workspaces.lend(this.#captured, place);
  }
}

/** The disk of a sandbox that is rolled back, for the VM instance that replaces the one that has it. */
export class RevertedDisk implements DiskForVm {
  readonly isMounted = true;
  readonly #workspaces: Workspaces;
  readonly #old: Attachment;
  readonly #version: number;

  constructor(workspaces: Workspaces, old: Attachment, version: number) {
    this.#workspaces = workspaces;
    this.#old = old;
    this.#version = version;
  }

  async bind(place: DiskPlace): Promise<BoundDisk> {
    const attachment = await this.#workspaces.bindReplacement(this.#old, this.#version, place);
    const { disk, version, drained_at } = attachment.record;
    return { attachment, mounted: { disk, version, drained_at, is_recovered: false } };
  }
}

export class PendingDisk implements DiskForVm {
  readonly #workspaces: Workspaces;
  readonly #asked: VmWorkspace;
  readonly #vmId: string;
  readonly left: LeftDisk | undefined;
  #taken: Promise<TakenWorkspace>;
  #isBound = false;

  /** `left` is what the guest has mounted instead. */
  constructor(
    workspaces: Workspaces,
    { asked, vmId, left }: { asked: VmWorkspace; vmId: string; left: CapturedWorkspace | undefined },
  ) {
    this.#workspaces = workspaces;
    this.left = left === undefined ? undefined : new LeftDisk(workspaces, left);
    this.#asked = asked;
    this.#vmId = vmId;
    this.#taken = this.#take();
  }

  get isMounted(): boolean {
    return this.#asked.version !== undefined;
  }

  /** Gives the disk to a VM instance; to another one, if the first has died. Throws the error of the take. */
  async bind(place: DiskPlace): Promise<BoundDisk> {
    if (this.#isBound) this.#taken = this.#take();
    this.#isBound = false;
    const taken = await this.#taken;
    let attachment: Attachment;
    try {
      attachment = this.#workspaces.bind(taken, place);
    } finally {
      // A VM instance that got it in part gives it up itself.
      this.#isBound = this.#workspaces.findOfUnit(place.unit) !== undefined;
    }
    const { asked, version, drainedAt: drained_at, isRecovered: is_recovered } = taken;
    return { attachment, mounted: { disk: asked.disk, version, drained_at, is_recovered } };
  }

  /** Gives the disk up if no VM instance has it. */
  async abandon(): Promise<void> {
    if (this.#isBound) return;
    this.#isBound = true;
    const taken = await this.#taken.catch(() => undefined);
    if (taken !== undefined) await this.#workspaces.abandon(taken);
  }

  #take(): Promise<TakenWorkspace> {
    const taking = this.#workspaces.take(this.#asked, this.#vmId);
    // The caller that binds or abandons gets the error.
    taking.catch(() => undefined);
    return taking;
  }
}
