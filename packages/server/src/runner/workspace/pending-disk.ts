/** A persistent disk that a VM will get. It is taken while the VM is being prepared, so that its create takes no longer. */
import type { MountedWorkspace, VmWorkspace } from '../../lib/protocol/disk-protocol.ts';
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
  bind(place: { unit: string; uid: number }): Promise<BoundDisk>;
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

  async bind(place: { unit: string; uid: number }): Promise<BoundDisk> {
    const attachment = await this.#workspaces.bindReplacement(this.#old, this.#version, place);
    const { disk, version, drained_at } = attachment.record;
    return { attachment, mounted: { disk, version, drained_at, is_recovered: false } };
  }
}

export class PendingDisk implements DiskForVm {
  readonly #workspaces: Workspaces;
  readonly #asked: VmWorkspace;
  readonly #vmId: string;
  #taken: Promise<TakenWorkspace>;
  #isBound = false;

  constructor(workspaces: Workspaces, asked: VmWorkspace, vmId: string) {
    this.#workspaces = workspaces;
    this.#asked = asked;
    this.#vmId = vmId;
    this.#taken = this.#take();
  }

  get isMounted(): boolean {
    return this.#asked.version !== undefined;
  }

  /** Gives the disk to a VM instance; to another one, if the first has died. Throws the error of the take. */
  async bind(place: { unit: string; uid: number }): Promise<BoundDisk> {
    if (this.#isBound) this.#taken = this.#take();
    this.#isBound = false;
    const taken = await this.#taken;
    let attachment: Attachment;
    try {
      attachment = await this.#workspaces.bind(taken, place);
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
    // Whoever binds or abandons gets the error.
    taking.catch(() => undefined);
    return taking;
  }
}
