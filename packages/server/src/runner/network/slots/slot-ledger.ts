/**
 * Records the state and the VM of each slot. Pure bookkeeping: the caller makes the changes on the host.
 * ```
 *            reserve            prepared           lease
 *   (free) ───────────► preparing ───────► ready ─────────► leased
 *     ▲                     │                │                │ release
 *     │ quarantine over     │ discard        │ discard        ▼
 *     └──── quarantined ◄───┴────────────────┴─────────── removing ◄──── found
 *                          removed                           discard      │ adopt → leased
 * ```
 * `found` slots have TAPs of an earlier runner process. A TAP serves one guest only and is then deleted and made anew,
 * because an escaped VMM may have changed its address or filters. The lowest free slot is taken first, since uids are
 * derived from it.
 */
import { invariant } from '../../../lib/invariant.ts';
type Slot =
  | { state: 'preparing' | 'ready' | 'found' | 'removing' }
  | { state: 'leased'; vmId: string }
  | { state: 'quarantined'; untilMs: number };

export class SlotLedger {
  readonly #capacity: number;
  readonly #quarantineMs: number;
  readonly #slots = new Map<number, Slot>();
  readonly #byVm = new Map<string, number>();

  constructor(options: { capacity: number; quarantineMs: number; found: readonly number[] }) {
    this.#capacity = options.capacity;
    this.#quarantineMs = options.quarantineMs;
    for (const index of options.found) this.#slots.set(index, { state: 'found' });
  }

  findByVm(vmId: string): number | undefined {
    return this.#byVm.get(vmId);
  }

  list(state: Slot['state']): number[] {
    return [...this.#slots].filter(([, slot]) => slot.state === state).map(([index]) => index);
  }

  /** Lists the slots whose TAP exists or is about to exist. */
  listPresent(): number[] {
    return [...this.#slots].filter(([, slot]) => slot.state !== 'quarantined').map(([index]) => index);
  }

  /** Reserves up to `count` free slots for preparation; fewer when there are no more. */
  reserve(count: number, nowMs: number): number[] {
    const reserved: number[] = [];
    for (let index = 0; index < this.#capacity && reserved.length < count; index += 1) {
      if (!this.#isFree(index, nowMs)) continue;
      this.#slots.set(index, { state: 'preparing' });
      reserved.push(index);
    }
    return reserved;
  }

  prepared(index: number): void {
    this.#expect(index, 'preparing');
    this.#slots.set(index, { state: 'ready' });
  }

  /** Leases the lowest ready slot to the VM, if possible not `avoid`. Returns undefined when none is ready. */
  lease(vmId: string, avoid?: number): number | undefined {
    invariant(!this.#byVm.has(vmId), `VM ${vmId} has a network slot already`);
    const ready = this.list('ready');
    if (ready.length === 0) return undefined;
    const others = ready.filter((each) => each !== avoid);
    const index = Math.min(...(others.length === 0 ? ready : others));
    this.#give(index, vmId);
    return index;
  }

  /** Returns false when the slot cannot be adopted. */
  adopt(vmId: string, index: number): boolean {
    if (this.#byVm.get(vmId) === index) return true;
    if (this.#byVm.has(vmId) || this.#slots.get(index)?.state !== 'found') return false;
    this.#give(index, vmId);
    return true;
  }

  /** Returns the slot to remove now; undefined when the VM has none. */
  release(vmId: string): number | undefined {
    const index = this.#byVm.get(vmId);
    if (index === undefined) return undefined;
    this.#byVm.delete(vmId);
    this.#slots.set(index, { state: 'removing' });
    return index;
  }

  /** Marks slots that belong to no VM for removal. */
  discard(indexes: readonly number[]): void {
    for (const index of indexes) {
      this.#expect(index, 'preparing', 'ready', 'found');
      this.#slots.set(index, { state: 'removing' });
    }
  }

  removed(index: number, nowMs: number): void {
    this.#expect(index, 'removing');
    this.#slots.set(index, { state: 'quarantined', untilMs: nowMs + this.#quarantineMs });
  }

  /** Returns the time at which the next quarantine ends; undefined when there is none. */
  nextFreeAtMs(): number | undefined {
    const ends = [...this.#slots.values()].flatMap((slot) =>
      slot.state === 'quarantined' ? [slot.untilMs] : [],
    );
    return ends.length > 0 ? Math.min(...ends) : undefined;
  }

  #isFree(index: number, nowMs: number): boolean {
    const slot = this.#slots.get(index);
    return slot === undefined || (slot.state === 'quarantined' && slot.untilMs <= nowMs);
  }

  #give(index: number, vmId: string): void {
    this.#slots.set(index, { state: 'leased', vmId });
    this.#byVm.set(vmId, index);
  }

  #expect(index: number, ...states: Slot['state'][]): void {
    const state = this.#slots.get(index)?.state ?? 'free';
    invariant(
      states.some((expected) => expected === state),
      `network slot ${index} is ${state}`,
    );
  }
}
