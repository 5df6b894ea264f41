import type { ClosedAddresses } from '@coppice/contract';
import type { JudgedCounters } from '../lib/protocol/egress-protocol.ts';
import type { EgressGuest } from '../lib/protocol/egress-messages.ts';
import type { GuestTable } from './guest-table.ts';
import { LiveGuest } from './live-guest.ts';
import type { NoteOutbox } from './notes/note-outbox.ts';

export interface LiveGuestTableOptions {
  /** The closed addresses at the start. */
  closed: ClosedAddresses;
  outbox: NoteOutbox;
  /** Called when an address is free, or belongs to another guest. */
  onForget(address: string): void;
}

/** The guest table that the runner's messages update. */
export class LiveGuestTable implements GuestTable {
  readonly #options: Omit<LiveGuestTableOptions, 'closed'>;
  readonly #guests = new Map<string, LiveGuest>();
  #closed: ClosedAddresses;

  constructor({ closed, ...options }: LiveGuestTableOptions) {
    this.#options = options;
    this.#closed = closed;
  }

  findByAddress(address: string): LiveGuest | undefined {
    return this.#guests.get(address);
  }

  /**
   * Adds or changes the guest at an address; the change is in force when it returns. If it throws, the address has no
   * guest: a policy that cannot be parsed allows nothing.
   */
  set({ address, vmId, egress }: Pick<EgressGuest, 'address' | 'vmId' | 'egress'>): void {
    try {
      const known = this.#guests.get(address);
      if (known?.vmId === vmId) return known.change(egress);
      const { outbox } = this.#options;
      const guest = new LiveGuest({ address, vmId, egress, closed: this.#closed, outbox });
      this.forget(address);
      this.#guests.set(address, guest);
    } catch (error) {
      this.forget(address);
      throw error;
    }
  }

  /** Replaces the closed addresses of all guests, including later ones. The change is in force when it returns. */
  setClosed(closed: ClosedAddresses): void {
    this.#closed = closed;
    for (const guest of this.#guests.values()) guest.setClosed(closed);
  }

  forget(address: string): void {
    const guest = this.#guests.get(address);
    if (guest === undefined) return;
    this.#guests.delete(address);
    guest.end();
    this.#options.onForget(address);
  }

  countersOf(address: string): JudgedCounters | null {
    return this.#guests.get(address)?.counters ?? null;
  }
}
