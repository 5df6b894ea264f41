/**
 * Notices that somebody removed our table. Reloading a host's own firewall usually begins with `flush ruleset`, which
 * takes every table with it; guests would then be forwarded without any rule. The kernel announces each change of
 * the ruleset; `onRemoved` puts the table back.
 */
import { listAttributes, parseMessages } from '../kernel/netlink-message.ts';
import { NetlinkSocket, type Received } from '../kernel/netlink-socket.ts';

/** `1 << (NFNLGRP_NFTABLES - 1)` */
const NFTABLES_GROUP = 1 << 6;
/** `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE` */
const TABLE_DELETED = 0x0a_02;
const NFTA_TABLE_NAME = 1;
/** Datagrams read in one turn of the event loop. */
const BATCH_LIMIT = 256;

/** The names of the tables whose deletion a datagram announces. A message that is cut short ends the list. */
export function parseDeletedTables(datagram: Buffer): string[] {
  return [...parseMessages(datagram)].flatMap(({ type, attributes }) =>
    type === TABLE_DELETED ? (findTableName(attributes) ?? []) : [],
  );
}

export class TableWatch implements Disposable {
  readonly #socket = new NetlinkSocket(NFTABLES_GROUP);
  readonly #table: string;
  readonly #onRemoved: () => void;

  /** `onRemoved` may be called without cause (also by our own replacing of the table) and must not throw. */
  constructor(table: string, onRemoved: () => void) {
    this.#table = table;
    this.#onRemoved = onRemoved;
    this.#socket.watch(() => this.#read());
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }

  #read(): void {
    let isRemoved = false;
    for (let count = 0; count < BATCH_LIMIT; count += 1) {
      const received = this.#socket.receive();
      if (received.kind === 'empty') break;
      isRemoved ||= this.#tellsRemoval(received);
    }
    if (isRemoved) this.#onRemoved();
  }

  /** After an overflow nobody knows what was missed. */
  #tellsRemoval(received: Received): boolean {
    return received.kind !== 'datagram' || parseDeletedTables(received.bytes).includes(this.#table);
  }
}

function findTableName(attributes: Buffer): string | undefined {
  for (const { type, payload } of listAttributes(attributes))
    if (type === NFTA_TABLE_NAME) return payload.toString('latin1').replace(/\0+$/u, '');
  return undefined;
}
