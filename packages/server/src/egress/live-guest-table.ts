import type { ClosedAddresses } from '@coppice/contract';
import type { JudgedCounters } from '../lib/protocol/egress-protocol.ts';
import type { EgressGuest } from '../lib/protocol/egress-messages.ts';
import type { GuestTable } from './guest-table.ts';
import { LiveGuest } from './live-guest.ts';
import type { NoteOutbox } from './notes/note-outbox.ts';

export interface LiveGuestTableOptions {
  /** To begin with. */
  closed: ClosedAddresses;
  outbox: NoteOutbox;
  /** The address is nobody's any more, or another's. */
  onForget(address: string): void;
}

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

  /** In force when it returns. When it throws, nobody is at the address: a policy that is not understood opens nothing. */
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

  /** Of all guests, those that come too; in force when it returns. */
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
