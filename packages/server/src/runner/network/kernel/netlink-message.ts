/** The frame of netfilter's netlink messages: linux/netlink.h, linux/netfilter/nfnetlink.h. */

export const NLM_F_REQUEST_ACK = 0x05;
export const NLMSG_ERROR = 2;

const HEADER_BYTES = 16;
const FAMILY_HEADER_BYTES = 4;
const ATTRIBUTE_HEADER_BYTES = 4;
/** Masks the flags for nesting and byte order. */
const ATTRIBUTE_TYPE_MASK = 0x3f_ff;

export interface NetlinkMessage {
  type: number;
  sequence: number;
  /** All bytes after the netlink header. */
  body: Buffer;
  /** All bytes after the netfilter header. */
  attributes: Buffer;
}

export interface NetlinkAttribute {
  type: number;
  payload: Buffer;
}

export interface NetlinkRequest {
  type: number;
  flags: number;
  sequence: number;
  family: number;
  attributes: readonly (readonly [type: number, payload: Buffer])[];
}

export function buildRequest({ type, flags, sequence, family, attributes }: NetlinkRequest): Buffer {
  const header = Buffer.alloc(HEADER_BYTES + FAMILY_HEADER_BYTES);
  header.writeUInt16LE(type, 4);
  header.writeUInt16LE(flags, 6);
  header.writeUInt32LE(sequence, 8);
  header.writeUInt8(family, HEADER_BYTES);
  const message = Buffer.concat([header, ...attributes.map((attribute) => encodeAttribute(...attribute))]);
  message.writeUInt32LE(message.length, 0);
  return message;
}

function encodeAttribute(type: number, payload: Buffer): Buffer {
  const length = ATTRIBUTE_HEADER_BYTES + payload.length;
  const attribute = Buffer.alloc(align(length));
  attribute.writeUInt16LE(length, 0);
  attribute.writeUInt16LE(type, 2);
  payload.copy(attribute, ATTRIBUTE_HEADER_BYTES);
  return attribute;
}

/** Encodes a number for an attribute: big-endian, unlike the headers. */
export function encodeUint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** Yields the messages of a datagram. A truncated message ends the list. */
export function* parseMessages(datagram: Buffer): Generator<NetlinkMessage> {
  let offset = 0;
  while (offset + HEADER_BYTES <= datagram.length) {
    const length = datagram.readUInt32LE(offset);
    if (length < HEADER_BYTES || offset + length > datagram.length) return;
    const body = datagram.subarray(offset + HEADER_BYTES, offset + length);
    yield {
      type: datagram.readUInt16LE(offset + 4),
      sequence: datagram.readUInt32LE(offset + 8),
      body,
      attributes: body.subarray(FAMILY_HEADER_BYTES),
    };
    offset += align(length);
  }
}

/** Yields the attributes. A truncated one ends the list. */
export function* listAttributes(attributes: Buffer): Generator<NetlinkAttribute> {
  let offset = 0;
  while (offset + ATTRIBUTE_HEADER_BYTES <= attributes.length) {
    const length = attributes.readUInt16LE(offset);
    if (length < ATTRIBUTE_HEADER_BYTES || offset + length > attributes.length) return;
    yield {
      type: attributes.readUInt16LE(offset + 2) & ATTRIBUTE_TYPE_MASK,
      payload: attributes.subarray(offset + ATTRIBUTE_HEADER_BYTES, offset + length),
    };
    offset += align(length);
  }
}

/** Rounds up: netlink messages and attributes begin at multiples of four bytes. */
function align(length: number): number {
  return (length + 3) & ~3;
}
