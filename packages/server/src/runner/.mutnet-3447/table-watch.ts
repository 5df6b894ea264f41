/**
 * Notices that somebody removed our table. Reloading a host's own firewall usually begins with `flush ruleset`, which
 * takes every table with it; guests would then be forwarded without any rule. The kernel announces each change of
 * the ruleset; `onRemoved` puts the table back.
 */
import { NetlinkSocket, type Received } from './netlink-socket.ts';

/** `1 << (NFNLGRP_NFTABLES - 1)` */
const NFTABLES_GROUP = 1 << 6;
/** `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE` */
const TABLE_DELETED = 0x0a_02;
const HEADER_BYTES = 16;
const FAMILY_HEADER_BYTES = 4;
const ATTRIBUTE_HEADER_BYTES = 4;
const NFTA_TABLE_NAME = 1;
/** Datagrams read in one turn of the event loop. */
const BATCH_LIMIT = 256;

/** The names of the tables whose deletion a datagram announces. A message that is cut short ends the list. */
export function parseDeletedTables(datagram: Buffer): string[] {
  const names: string[] = [];
  let offset = 0;
  while (offset + HEADER_BYTES <= datagram.length) {
    const length = datagram.readUInt32LE(offset);
    if (length < HEADER_BYTES || offset + length > datagram.length) break;
    if (datagram.readUInt16LE(offset + 4) === TABLE_DELETED) {
      const name = findTableName(
        datagram.subarray(offset + HEADER_BYTES + FAMILY_HEADER_BYTES, offset + length),
      );
      if (name !== undefined) names.push(name);
    }
    offset += align(length);
  }
  return names;
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
  let offset = 0;
  while (offset + ATTRIBUTE_HEADER_BYTES <= attributes.length) {
    const length = attributes.readUInt16LE(offset);
    if (length < ATTRIBUTE_HEADER_BYTES || offset + length > attributes.length) return undefined;
    if (attributes.readUInt16LE(offset + 2) === NFTA_TABLE_NAME) {
      const text = attributes.toString('latin1', offset + ATTRIBUTE_HEADER_BYTES, offset + length);
      return text.replace(/\0+$/u, '');
    }
    offset += align(length);
  }
  return undefined;
}

/** Netlink messages and attributes begin at multiples of four bytes. */
function align(length: number): number {
  return (length + 3) & ~3;
}
