/**
 * Reads sets and counters of an nftables table without starting a process. Layout: linux/netfilter/nf_tables.h; numbers
 * in attributes are big-endian, those in headers have the machine's byte order.
 */
import { AppError } from '@coppice/contract';
import koffi from 'koffi';
import { SerialQueue } from '../../../lib/waiting/serial-queue.ts';
import { NetlinkSocket } from './netlink-socket.ts';
import {
  buildRequest,
  encodeUint32,
  listAttributes,
  NLM_F_REQUEST_ACK,
  NLMSG_ERROR,
  parseMessages,
  type NetlinkMessage,
} from './netlink-message.ts';

const GET_SET_ELEMENTS = 0x0a_0d;
const GET_OBJECT = 0x0a_13;
const NLM_F_REQUEST_DUMP = 0x3_01;
const NLMSG_DONE = 3;
const NFPROTO_INET = 1;
const OBJECT_COUNTER = 1;
const ACK_BYTES = 4;
const LONG_BYTES = 8;

/** Attribute types: NFTA_SET_ELEM_LIST_*, NFTA_SET_ELEM_*, NFTA_OBJ_*, NFTA_COUNTER_*. */
const LIST = { table: 1, set: 2, elements: 3 } as const;
const ELEMENT = { key: 1, expiration: 5, expression: 7, expressions: 11 } as const;
const OBJECT = { table: 1, name: 2, type: 3, data: 4 } as const;
const COUNTER_PACKETS = 2;
const EXPRESSION_DATA = 2;

export interface SetElement {
  key: Buffer;
  /** 0 for an element without a counter. */
  packets: number;
  /** Infinite for an element without a timeout. */
  remainingMs: number;
}

export class SetReader implements Disposable {
  readonly #socket = new NetlinkSocket();
  readonly #table: string;
  readonly #turns = new SerialQueue();
  #sequence = 0;

  constructor(table: string) {
    this.#table = table;
  }

  /** Returns the elements of a set; undefined when there is no such set, or no such table. */
  readSet(name: string): Promise<SetElement[] | undefined> {
    return this.#turns.run(async () => {
      const messages = await this.#ask(GET_SET_ELEMENTS, NLM_F_REQUEST_DUMP, [
        [LIST.table, encodeText(this.#table)],
        [LIST.set, encodeText(name)],
      ]);
      return messages?.flatMap(({ attributes }) => parseElements(attributes));
    });
  }

  /** Returns the packets of a named counter; undefined when there is no such counter, or no such table. */
  readCounter(name: string): Promise<number | undefined> {
    return this.#turns.run(async () => {
      const messages = await this.#ask(GET_OBJECT, NLM_F_REQUEST_ACK, [
        [OBJECT.table, encodeText(this.#table)],
        [OBJECT.name, encodeText(name)],
        [OBJECT.type, encodeUint32(OBJECT_COUNTER)],
      ]);
      const [message] = messages ?? [];
      return message && parseCounter(find(message.attributes, OBJECT.data));
    });
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }

  /** Sends one request at a time, as the next messages in the socket must be its answer. */
  async #ask(
    type: number,
    flags: number,
    attributes: [number, Buffer][],
  ): Promise<NetlinkMessage[] | undefined> {
    this.#sequence += 1;
    const sequence = this.#sequence;
    await this.#socket.send(buildRequest({ family: NFPROTO_INET, type, flags, sequence, attributes }));
    const messages: NetlinkMessage[] = [];
    for (;;) {
      const received = this.#socket.receive();
      if (received.kind !== 'datagram')
        throw new AppError('internal', 'reading nftables: the answer broke off');
      for (const message of parseMessages(received.bytes)) {
        if (message.sequence !== sequence) continue;
        if (message.type === NLMSG_DONE || message.type === NLMSG_ERROR) return finish(message, messages);
        messages.push(message);
      }
    }
  }
}

function finish({ body }: NetlinkMessage, messages: NetlinkMessage[]): NetlinkMessage[] | undefined {
  const code = body.length < ACK_BYTES ? 0 : Math.abs(body.readInt32LE(0));
  if (code === 0) return messages;
  if (code === koffi.os.errno['ENOENT']) return undefined;
  throw new AppError('internal', `reading nftables: the kernel refused with error ${code}`);
}

/** Parses the elements of one message of a dump; a malformed one ends the list. */
export function parseElements(attributes: Buffer): SetElement[] {
  const list = find(attributes, LIST.elements);
  if (list === undefined) return [];
  return [...listAttributes(list)].flatMap(({ payload }) => {
    const key = find(find(payload, ELEMENT.key), 1);
    if (key === undefined) return [];
    return {
      key,
      packets: parseCounter(find(findExpression(payload), EXPRESSION_DATA)) ?? 0,
      remainingMs: readNumber(find(payload, ELEMENT.expiration)) ?? Infinity,
    };
  });
}

/** Returns the only expression, in either form that the kernel writes. */
function findExpression(element: Buffer): Buffer | undefined {
  return find(element, ELEMENT.expression) ?? find(find(element, ELEMENT.expressions), 1);
}

function parseCounter(data: Buffer | undefined): number | undefined {
  return readNumber(find(data, COUNTER_PACKETS));
}

function readNumber(bytes: Buffer | undefined): number | undefined {
  return bytes?.length === LONG_BYTES ? Number(bytes.readBigUInt64BE(0)) : undefined;
}

function find(attributes: Buffer | undefined, type: number): Buffer | undefined {
  if (attributes === undefined) return undefined;
  for (const attribute of listAttributes(attributes)) if (attribute.type === type) return attribute.payload;
  return undefined;
}

function encodeText(text: string): Buffer {
  return Buffer.from(`${text}\0`, 'latin1');
}
