/**
 * Notices that another program removed the instance's table. A reload of the host's own firewall usually begins with
 * `flush ruleset`, which removes every table; the kernel would then forward for guests without any rule. The kernel
 * announces each change of the ruleset; `onRemoved` restores the table.
 */
import { listAttributes, parseMessages } from '../kernel/netlink-message.ts';
import { NetlinkSocket, type Received } from '../kernel/netlink-socket.ts';

/** `1 << (NFNLGRP_NFTABLES - 1)` */
const NFTABLES_GROUP = 1 << 6;
/** `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE` */
const TABLE_DELETED = 0x0a_02;
const NFTA_TABLE_NAME = 1;
/** Most datagrams read in one iteration of the event loop. */
const BATCH_LIMIT = 256;

/** Returns the names of the tables whose deletion a datagram announces. A truncated message ends the list. */
export function parseDeletedTables(datagram: Buffer): string[] {
  return [...parseMessages(datagram)].flatMap(({ type, attributes }) =>
    type === TABLE_DELETED ? (findTableName(attributes) ?? []) : [],
  );
}

export class TableWatch implements Disposable {
  readonly #socket = new NetlinkSocket(NFTABLES_GROUP);
  readonly #table: string;
  readonly #onRemoved: () => void;

  /** `onRemoved` may be called without cause (also when the runner replaces the table) and must not throw. */
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

  /** Returns true after an overflow too, as the lost messages are unknown. */
  #tellsRemoval(received: Received): boolean {
    return received.kind !== 'datagram' || parseDeletedTables(received.bytes).includes(this.#table);
  }
}

function findTableName(attributes: Buffer): string | undefined {
  for (const { type, payload } of listAttributes(attributes))
    if (type === NFTA_TABLE_NAME) return payload.toString('latin1').replace(/\0+$/u, '');
  return undefined;
}
