/**
 * One connection of a guest, from its accept to its end.
 *
 *     accepted ─ by address ─┬─ first bytes ─┬─ verdict ─ dial ─ verdict ─ relay ─ closed
 *                            └───────────────┘                              │
 *                                          late first bytes, new policy ────┴─ cut
 *
 * The verdict is asked for again after every wait: the policy may have changed meanwhile. Whatever is refused ends with a
 * reset, so that no program in the guest waits.
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
  /** Paused, and with a listener for its errors. */
  socket: Socket;
  original: Endpoint;
  upstream: Upstream;
  idleMs?: number;
}

interface OpenEnd extends DialledEnd {
  socket: Socket;
}

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

  /** Resolves when it has ended, whatever the guest or the network did. */
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

  /** undefined when the guest has left. Where no name could change the verdict nothing is read. */
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

  /** Whether the connection is open and allowed. */
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

  /** A name that comes now cannot be dialled any more. Where none matters by now, it may come. */
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

  /** Before there is a connection only its address is known; the name's verdict is still to come. */
  #judgeAgain(): void {
    const open = this.#open;
    const verdict =
      open === undefined ? judgeAddress(this.#guest.policy, this.#original.address) : this.#judgeOpen(open);
    if (verdict?.action === 'deny') this.#refuse(verdict.reason);
  }

  /** Of a connection whose first bytes were passed on unread nobody knows the name any more. */
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
    // An address in place of a name is none.
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
