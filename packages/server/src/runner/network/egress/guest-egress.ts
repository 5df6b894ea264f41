/**
 * The way out of each guest, by the unit that its VM runs as: which path its packets take, what the egress process knows
 * of it, and what is told of packets that the kernel refused. A guest that nobody has set is unknown to the egress
 * process; its slot is open, as nobody's code runs there yet.
 */
import { AppError, findNetworkPath } from '@coppice/contract';
import type { Logger } from 'pino';
import type { VmNote } from '../../../lib/protocol/egress-messages.ts';
import { BlockedNotes } from '../../../lib/protocol/blocked-notes.ts';
import type { EgressCounters, EgressNote } from '../../../lib/protocol/egress-protocol.ts';
import type { ClosedHere } from './closed-here.ts';
import type { ConnectionFlusher } from '../kernel/connection-flusher.ts';
import type { EgressGuest, EgressProcess } from './egress-process.ts';
import type { Firewall } from '../firewall/firewall.ts';
import type { RefusedKind } from '../firewall/refused-packets.ts';
import type { RefusedReader } from '../firewall/refused-reader.ts';
import { readTapTraffic } from '../kernel/tap-traffic.ts';

/** Notes of refused packets that wait for the disk; what is not taken is counted on. */
const MAX_WAITING_NOTES = 4096;

/** A slot as the kernel has it. */
export interface SlotPlace {
  index: number;
  tap: string;
  address: string;
  /** Of its connections. */
  mark: number;
}

export interface GuestEgressOptions {
  firewall: Firewall;
  flusher: ConnectionFlusher;
  process: EgressProcess;
  refused: RefusedReader;
  closed: () => ClosedHere;
  /** Settles when they are durable. */
  onNotes: (notes: VmNote[]) => Promise<void>;
  log: Logger;
}

interface Way {
  place: SlotPlace;
  guest: EgressGuest;
  blocked: BlockedNotes;
  refusedPackets: number;
}

export class GuestEgress {
  readonly #options: GuestEgressOptions;
  readonly #ways = new Map<string, Way>();
  readonly #byTap = new Map<string, Way>();
  #waitingNotes = 0;

  constructor(options: GuestEgressOptions) {
    this.#options = options;
  }

  /**
   * Settles when it is in force: for a guest with rules nothing is forwarded any more, not even of connections that are
   * open. After a rejection it is never wider than what was set last: closed, or unknown to the egress process.
   */
  async set(unit: string, place: SlotPlace, guest: EgressGuest): Promise<void> {
    const { firewall, process } = this.#options;
    this.#keep(unit, place, guest);
    const isOpen = findNetworkPath(guest.egress.network) === 'kernel';
    if (!isOpen) await this.#close(place);
    await process.setGuest(place.address, guest);
    if (isOpen) await firewall.setOpen(place.index, true);
  }

  /**
   * As an earlier runner process had set it; the egress process is told in the background. Rejects when a slot that
   * must be closed is not.
   */
  async adopt(unit: string, place: SlotPlace, guest: EgressGuest): Promise<void> {
    const { firewall, process, log } = this.#options;
    this.#keep(unit, place, guest);
    process.setGuest(place.address, guest).catch((error: unknown) => {
      log.error({ err: error, unit }, 'the egress process has not been told of a guest; its next start will');
    });
    if (findNetworkPath(guest.egress.network) === 'kernel') await firewall.setOpen(place.index, true);
    else await this.#close(place);
  }

  /** When it settles all connections of the guest through the egress process are closed, and all notes are on their way. */
  async end(unit: string): Promise<void> {
    const { process, refused, log } = this.#options;
    const way = this.#ways.get(unit);
    if (way === undefined) return;
    try {
      await process.forget(way.place.address);
      await refused.read();
    } catch (error) {
      log.warn({ err: error, unit }, 'the last refusals of a guest may be missing');
    }
    this.#ways.delete(unit);
    if (this.#byTap.get(way.place.tap) === way) this.#byTap.delete(way.place.tap);
    const left = way.blocked.end();
    if (left.length > 0) this.#pass(left.map((note) => ({ vmId: way.guest.vmId, note })));
  }

  /** Throws `not_found` when something of it cannot be had: what is not known is not 0. */
  async readCounters(unit: string): Promise<EgressCounters> {
    const way = this.#ways.get(unit);
    if (way === undefined) throw new AppError('not_found', 'the sandbox has no way out that is counted');
    const { place, guest } = way;
    await this.#options.refused.read();
    const judged = await this.#options.process.readCounters(place.address);
    const traffic = readTapTraffic(place.tap);
    if (judged === undefined || traffic === undefined)
      throw new AppError('not_found', 'the counters of the sandbox cannot be read');
    const isOpen = findNetworkPath(guest.egress.network) === 'kernel';
    return {
      ...judged,
      ...(isOpen ? { connections_open: null, connections_allowed: null } : {}),
      connections_blocked: judged.connections_blocked + way.refusedPackets,
      bytes_sent: traffic.fromGuestBytes,
      bytes_received: traffic.toGuestBytes,
    };
  }

  /** Of guests that are still known; settles when they are durable. */
  async passNotes(notes: readonly VmNote[]): Promise<void> {
    const known = new Set([...this.#ways.values()].map(({ guest }) => guest.vmId));
    const own = notes.filter(({ vmId }) => known.has(vmId));
    if (own.length > 0) await this.#options.onNotes(own);
  }

  /** `count` packets were dropped; told like the refusals of the egress process. */
  noteRefused(kind: RefusedKind, count: number): void {
    const way = this.#byTap.get(kind.tap);
    if (way === undefined) return;
    way.refusedPackets += count;
    const { ip, port } = kind;
    const destination = { ...(ip === undefined ? {} : { ip }), ...(port === undefined ? {} : { port }) };
    const data = { ...destination, reason: this.#reasonOf(way, kind), count };
    way.blocked.add({ event: 'network.blocked', ts: new Date().toISOString(), data });
  }

  #keep(unit: string, place: SlotPlace, guest: EgressGuest): void {
    const way = this.#ways.get(unit);
    if (way !== undefined) {
      way.guest = guest;
      return;
    }
    const { vmId } = guest;
    const blocked = new BlockedNotes({ offer: (note) => this.#offer({ vmId, note }) });
    const added = { place, guest, blocked, refusedPackets: 0 };
    this.#ways.set(unit, added);
    this.#byTap.set(place.tap, added);
  }

  async #close(place: SlotPlace): Promise<void> {
    const { firewall, flusher } = this.#options;
    if (!firewall.isOpen(place.index)) return;
    await firewall.setOpen(place.index, false);
    // Nothing of them is forwarded any more; what is sent next begins a connection to the egress process.
    await flusher.flush(place.mark);
  }

  /** A guest in the kernel's path has nothing refused but closed addresses; those that nothing else names are the host's. */
  #reasonOf({ guest }: Way, { ip, isSpoofed }: RefusedKind): string {
    if (isSpoofed) return 'source_not_own';
    const reason = ip === undefined ? undefined : this.#options.closed().findReason(ip);
    if (reason !== undefined) return reason;
    const isOpen = findNetworkPath(guest.egress.network) === 'kernel';
    return isOpen && ip !== undefined ? 'host_address' : 'protocol_not_allowed';
  }

  #offer(note: VmNote): boolean {
    if (this.#waitingNotes >= MAX_WAITING_NOTES) return false;
    this.#pass([note]);
    return true;
  }

  #pass(notes: { vmId: string; note: EgressNote }[]): void {
    const { onNotes, log } = this.#options;
    this.#waitingNotes += notes.length;
    onNotes(notes)
      .catch((error: unknown) =>
        log.error({ err: error, notes: notes.length }, 'notes of refused packets are lost'),
      )
      .finally(() => {
        this.#waitingNotes -= notes.length;
      });
  }
}
