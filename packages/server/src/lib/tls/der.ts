/** The part of DER (X.690) that X.509 certificates consist of. */

const LONG_LENGTH = 0x80;
const BYTE = 0x100;
/** Values of seven bits, each but the last with the high bit set. */
const OID_BASE = 0x80;
const OID_FIRST_FACTOR = 40;
/** RFC 5280 requires UTCTime before this year and GeneralizedTime from it on. */
const FIRST_GENERALIZED_YEAR = 2050;

const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  oid: 0x06,
  utf8String: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

/** Encodes a value with any tag. */
export function tagged(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(contents);
  return Buffer.concat([Buffer.of(tag), encodeLength(content.length), content]);
}

export const sequence = (...items: readonly Uint8Array[]): Buffer => tagged(TAG.sequence, ...items);
export const set = (...items: readonly Uint8Array[]): Buffer => tagged(TAG.set, ...items);
export const octetString = (bytes: Uint8Array): Buffer => tagged(TAG.octetString, bytes);
export const utf8String = (text: string): Buffer => tagged(TAG.utf8String, Buffer.from(text));
export const derTrue = (): Buffer => tagged(TAG.boolean, Buffer.of(0xff));

/** Encodes a positive integer of big-endian bytes. */
export function integer(bytes: Uint8Array): Buffer {
  const isNegative = ((bytes[0] ?? 0) & 0x80) !== 0;
  return tagged(TAG.integer, isNegative ? Buffer.concat([Buffer.of(0), bytes]) : bytes);
}

export function bitString(bytes: Uint8Array, unusedBits = 0): Buffer {
  return tagged(TAG.bitString, Buffer.of(unusedBits), bytes);
}

/** Encodes an object identifier such as `2.5.4.3`. */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  const bytes = [first * OID_FIRST_FACTOR + second, ...rest].flatMap(encodeArc);
  return tagged(TAG.oid, Buffer.from(bytes));
}

/** Encodes a time in whole seconds. */
export function time(date: Date): Buffer {
  const digits = date.toISOString().replaceAll(/[-:T]|\.\d+Z/gu, '');
  return date.getUTCFullYear() < FIRST_GENERALIZED_YEAR
    ? tagged(TAG.utcTime, Buffer.from(`${digits.slice(2)}Z`))
    : tagged(TAG.generalizedTime, Buffer.from(`${digits}Z`));
}

function encodeLength(length: number): Buffer {
  if (length < LONG_LENGTH) return Buffer.of(length);
  const bytes: number[] = [];
  for (let left = length; left > 0; left = Math.floor(left / BYTE)) bytes.unshift(left % BYTE);
  return Buffer.of(LONG_LENGTH + bytes.length, ...bytes);
}

function encodeArc(arc: number): number[] {
  const bytes = [arc % OID_BASE];
  for (let left = Math.floor(arc / OID_BASE); left > 0; left = Math.floor(left / OID_BASE))
    bytes.unshift(OID_BASE + (left % OID_BASE));
  return bytes;
}
