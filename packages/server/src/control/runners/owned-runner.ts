/** A runner that this control owns: its client, the time of its host, and what it last reported. */
import { AppError } from '@coppice/contract';
import type { CapacityStatus, RunnerStatus, VmShape } from '../../lib/protocol/runner-protocol.ts';
import { SHARED_IMAGES_VERSION } from '../../lib/protocol/wire-headers.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import type { Clock } from '../time/clock.ts';
import { LocalImages } from './local-images.ts';
import { RunnerPresence } from './runner-presence.ts';

export class OwnedRunner {
  /** Random; made by the runner. */
  readonly id: string;
  readonly client: RunnerClient;
  readonly presence: RunnerPresence;
  readonly images = new LocalImages();
  /** Whether its events arrive. */
  isConnected = false;
  /** Whether it gets no new VMs. */
  isCordoned = false;
  /** Whether it is about to get another owner: requests that have not begun wait for that one. */
  isLeaving = false;
  #status: RunnerStatus | undefined;
  /** Memory of VMs that were admitted since the last report. */
  #admittedMiB = 0;

  constructor(id: string, client: RunnerClient, clock: Clock) {
    this.id = id;
    this.client = client;
    this.presence = new RunnerPresence(clock);
  }

  noteStatus(status: RunnerStatus): void {
    this.#status = status;
    this.#admittedMiB = 0;
  }

  /** Notes a heartbeat, which is newer than the last status. */
  noteCapacity(capacity: CapacityStatus): void {
    if (this.#status !== undefined) this.noteStatus({ ...this.#status, capacity });
  }

  get hasReported(): boolean {
    return this.#status !== undefined;
  }

  /** As last reported. Throws `unavailable` before the first report. */
  get status(): RunnerStatus {
    if (this.#status !== undefined) return this.#status;
    throw new AppError('unavailable', `the runner ${this.id} has not been connected yet`);
  }

  /** Whether it puts built images into the object store, and fetches those that it lacks. */
  get fetchesImages(): boolean {
    return (this.#status?.protocol.newest ?? 0) >= SHARED_IMAGES_VERSION;
  }

  /** The memory and vCPUs that VMs may still take, as last reported. */
  get free(): { memMiB: number; vcpus: number } {
    const { mem_mib: memory, vcpus } = this.status.capacity;
    return {
      memMiB: Math.max(0, memory.limit - memory.promised),
      vcpus: Math.max(0, vcpus.limit - vcpus.promised),
    };
  }

  /** The part of its memory that VMs may still take, as far as is known here; 0 before the first report. */
  get freeShare(): number {
    if (this.#status === undefined) return 0;
    const { limit, promised } = this.#status.capacity.mem_mib;
    return (limit - promised - this.#admittedMiB) / Math.max(1, limit);
  }

  /** Whether it has room for a VM, as far as is known here. */
  hasRoom({ mem_mib, vcpus }: VmShape): boolean {
    if (this.#status === undefined) return false;
    const { memMiB, vcpus: freeVcpus } = this.free;
    return memMiB - this.#admittedMiB >= mem_mib && freeVcpus >= vcpus;
  }

  /** Reserves capacity for a VM until the result is disposed. Throws `invalid_request` or `capacity` if there is none. */
  async admit(vmId: string, shape: VmShape): Promise<Disposable> {
    const admission = await this.client.admitVm(vmId, shape);
    this.#admittedMiB += shape.mem_mib;
    return admission;
  }
}
