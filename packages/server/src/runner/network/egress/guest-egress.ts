/**
 * The outbound network of each guest, by VM instance: the path of its packets, its policy in the egress process, and
 * the notes about packets that the kernel refused. A guest whose policy is not set is unknown to the egress process;
 * its slot is open, as no code of the sandbox runs yet.
 */
import { AppError, findNetworkPath } from '@coppice/contract';
import type { Logger } from 'pino';
import type { VmNote } from '../../../lib/protocol/egress-messages.ts';
import { BlockedNotes } from '../../../lib/protocol/blocked-notes.ts';
import type { EgressCounters, EgressNote } from '../../../lib/protocol/egress-protocol.ts';
import type { ClosedHere } from './closed-here.ts';
import type { HostControl } from '../kernel/host-control.ts';
import type { EgressGuest, EgressProcess } from './egress-process.ts';
import type { Firewall } from '../firewall/firewall.ts';
import type { RefusedKind } from '../firewall/refused-packets.ts';
import type { RefusedReader } from '../firewall/refused-reader.ts';
import { readTapTraffic } from '../kernel/tap-traffic.ts';

/** Most notes of refused packets that wait for the disk; further packets are counted in later notes. */
const MAX_WAITING_NOTES = 4096;

/** A slot in the kernel. */
export interface SlotPlace {
  index: number;
  tap: string;
  address: string;
  /** Connection mark of the slot. */
  mark: number;
}

export interface GuestEgressOptions {
  firewall: Firewall;
  hostControl: Pick<HostControl, 'flushConnections'>;
  process: EgressProcess;
  refused: RefusedReader;
  closed: () => ClosedHere;
  /** Settles when the notes are durable. */
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
   * Sets the policy of a guest; settles when it is in force. For a guest with rules the kernel then forwards nothing,
   * not even for open connections. After a rejection the guest is closed or unknown to the egress process: its access
   * is never wider than the policy that was set last.
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
   * Adopts a guest with the policy that an earlier runner process set; the egress process receives it in the
   * background. Rejects when a slot that must be closed cannot be closed.
   */
  async adopt(unit: string, place: SlotPlace, guest: EgressGuest): Promise<void> {
    const { firewall, process, log } = this.#options;
    this.#keep(unit, place, guest);
    process.setGuest(place.address, guest).catch((error: unknown) => {
      log.error(
        { err: error, unit },
        'the egress process did not get the policy of a guest; it gets it at its next start',
      );
    });
    if (findNetworkPath(guest.egress.network) === 'kernel') await firewall.setOpen(place.index, true);
    else await this.#close(place);
  }

  /** Settles when the egress process has closed all connections of the guest and all notes are sent. */
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

  /** Throws `not_found` when a counter cannot be read: an unknown value is not reported as 0. */
  async readCounters(unit: string): Promise<EgressCounters> {
    const way = this.#ways.get(unit);
    if (way === undefined)
      throw new AppError('not_found', 'the outbound traffic of the sandbox is not counted');
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

  /** Passes on the notes of guests that are still known; settles when they are durable. */
  async passNotes(notes: readonly VmNote[]): Promise<void> {
    const known = new Set([...this.#ways.values()].map(({ guest }) => guest.vmId));
    const own = notes.filter(({ vmId }) => known.has(vmId));
    if (own.length > 0) await this.#options.onNotes(own);
  }

  /** Reports `count` dropped packets, like the refusals of the egress process. */
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
    const { firewall, hostControl } = this.#options;
    if (!firewall.isOpen(place.index)) return;
    await firewall.setOpen(place.index, false);
    // The kernel forwards no open connection any more; the next packet starts a connection to the egress process.
    await hostControl.flushConnections(place.mark);
  }

  /** For a guest on the kernel path only closed addresses are refused; one without another reason is the host's. */
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
