/**
 * Handles one connection of a guest from its accept to its end.
 *
 *     accepted ─ by address ─┬─ first bytes ─┬─ verdict ─ dial ─ verdict ─ relay ─ closed
 *                            └───────────────┘                              │
 *                                          late first bytes, new policy ────┴─ cut
 *
 * The connection is judged again after every wait, because the policy may have changed meanwhile. A refused connection
 * ends with a reset, so that no program in the guest waits.
 */
import {
  judge,
  judgeAddress,
  judgeFlow,
  type BlockReason,
  type Destination,
  type DialledEnd,
  type Verdict,
} from '@coppice/contract';
import type { Socket } from 'node:net';
import { planFirstBytesWait } from '../first-bytes/first-bytes-wait.ts';
import type { Guest } from '../guest-table.ts';
import { parseHostName } from '../names/host-name.ts';
import { RefusedError, UnreachableError, type Upstream } from '../upstream/upstream.ts';
import { FirstBytesReading, type FirstBytes, type ShownName } from './first-bytes-reading.ts';
import type { Endpoint } from './original-destination.ts';
import { joinEnds, resetSocket } from './relay.ts';

export interface FlowOptions {
  guest: Guest;
  /** The guest's socket. It must be paused and have a listener for errors. */
  socket: Socket;
  original: Endpoint;
  upstream: Upstream;
  idleMs?: number;
}

interface OpenEnd extends DialledEnd {
  socket: Socket;
}

/** One connection of a guest. */
export class Flow {
  readonly #guest: Guest;
  readonly #socket: Socket;
  readonly #original: Endpoint;
  readonly #options: FlowOptions;
  readonly #abort = new AbortController();
  #reading: FirstBytesReading | undefined;
  #shown: ShownName = {};
  #open: OpenEnd | undefined;

  constructor(options: FlowOptions) {
    this.#options = options;
    this.#guest = options.guest;
    this.#socket = options.socket;
    this.#original = options.original;
  }

  /** Handles the connection and resolves when it has ended. Rejects only for a fault of this process. */
  async run(): Promise<void> {
    const takeBack = [
      this.#guest.onForget(() => this.#cut()),
      this.#guest.onChange(() => this.#judgeAgain()),
    ];
    this.#socket.once('close', () => this.#abort.abort());
    try {
      await this.#serve();
    } finally {
      for (const take of takeBack) take();
      this.#cut();
    }
  }

  async #serve(): Promise<void> {
    const first = await this.#readFirst();
    if (first === undefined) return;
    this.#shown = first.shown;
    const verdict = judge(this.#guest.policy, this.#destination);
    if (verdict.action === 'deny') this.#refuse(verdict.reason);
    else if (await this.#dial(verdict)) await this.#relay(first);
  }

  /**
   * Reads the first bytes, or none if no name could change the verdict. Resolves with undefined when the guest has
   * closed the connection.
   */
  async #readFirst(): Promise<FirstBytes | undefined> {
    const { policy } = this.#guest;
    const { address, port } = this.#original;
    const byAddress = judge(policy, { address });
    const couldNameMatter = judgeAddress(policy, address) === undefined;
    const wait = planFirstBytesWait({
      port,
      couldNameMatter,
      isAddressAllowed: byAddress.action === 'allow',
    });
    if (wait.kind === 'none') return { shown: {}, bytes: Buffer.alloc(0), isSilent: false };
    this.#reading = new FirstBytesReading(this.#socket, wait);
    return this.#reading.read();
  }

  /** Dials the destination. Resolves with true if the connection is open and still allowed. */
  async #dial(verdict: Verdict & { action: 'allow' }): Promise<boolean> {
    const name = verdict.dial === 'name' ? verdict.name : undefined;
    const target = name === undefined ? this.#original : { ...this.#original, name };
    try {
      const dialled = await this.#options.upstream.dial(this.#guest, target, this.#abort.signal);
      this.#open = { ...dialled, name };
    } catch (error) {
      if (error instanceof RefusedError) this.#refuse(error.reason, error.address);
      else if (!(error instanceof UnreachableError) && !this.#abort.signal.aborted) throw error;
      return false;
    }
    this.#judgeAgain();
    return !this.#abort.signal.aborted;
  }

  async #relay(first: FirstBytes): Promise<void> {
    const open = this.#open;
    if (open === undefined) return;
    const guest = this.#guest;
    guest.count('connections_allowed');
    guest.count('connections_open');
    try {
      const ended = joinEnds(this.#socket, open.socket, this.#options.idleMs);
      open.socket.pipe(this.#socket);
      const late = this.#sendOn(first, open.socket);
      await Promise.all([ended, late]);
    } finally {
      guest.count('connections_open', -1);
    }
  }

  async #sendOn(first: FirstBytes, upstream: Socket): Promise<void> {
    let { bytes } = first;
    if (first.isSilent && !this.#socket.readableEnded) {
      const late = await this.#reading?.readLate();
      if (late === undefined || !this.#admitLate(late)) return;
      ({ bytes } = late);
    }
    if (bytes.length > 0) upstream.write(bytes);
    this.#socket.pipe(upstream);
  }

  /**
   * Judges late first bytes. A late name cannot be dialled any more, so it is refused unless the current policy needs
   * no name for this address.
   */
  #admitLate({ shown }: FirstBytes): boolean {
    const { policy } = this.#guest;
    this.#shown = shown;
    if (shown.isLate === true && judgeAddress(policy, this.#original.address) === undefined)
      this.#refuse('name_late');
    else this.#judgeAgain();
    return !this.#abort.signal.aborted;
  }

  get #destination(): Destination {
    return { address: this.#original.address, ...this.#shown };
  }

  /**
   * Judges the flow under the current policy. Before it is dialled, only its address is judged; the name is judged
   * later.
   */
  #judgeAgain(): void {
    const open = this.#open;
    const verdict =
      open === undefined ? judgeAddress(this.#guest.policy, this.#original.address) : this.#judgeOpen(open);
    if (verdict?.action === 'deny') this.#refuse(verdict.reason);
  }

  /** Judges an open connection. If its first bytes were forwarded unread, its name is unknown. */
  #judgeOpen(open: OpenEnd): Verdict {
    const { policy } = this.#guest;
    const isUnread = this.#reading === undefined;
    if (isUnread && judgeAddress(policy, open.address) === undefined)
      return { action: 'deny', reason: 'name_missing', rule: undefined };
    return judgeFlow(policy, this.#destination, open);
  }

  #refuse(reason: BlockReason, resolvedAddress?: string): void {
    if (this.#abort.signal.aborted) return;
    const { address, port } = this.#original;
    const { name } = this.#shown;
    const ip = resolvedAddress === undefined ? {} : { ip: resolvedAddress };
    // An address literal is not a name.
    const domain = name === undefined ? undefined : parseHostName(name);
    const destination = domain === undefined ? { ip: address } : { domain, ...ip };
    this.#guest.count('connections_blocked');
    this.#guest.note({
      event: 'network.blocked',
      ts: new Date().toISOString(),
      data: { ...destination, port, reason, count: 1 },
    });
    this.#cut();
  }

  #cut(): void {
    this.#abort.abort();
    resetSocket(this.#socket);
    if (this.#open !== undefined) resetSocket(this.#open.socket);
  }
}
