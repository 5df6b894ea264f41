/** Reads protobuf without a schema: https://protobuf.dev/programming-guides/encoding/. Independent of the exporter. */

type FieldValue = bigint | Buffer;

/** The values of each field, in their order. Numbers are bigints, everything with a length is bytes. */
export type Fields = ReadonlyMap<number, readonly FieldValue[]>;

const VARINT = 0;
const FIXED64 = 1;
const LENGTH = 2;
const FIXED32 = 5;

export function readFields(bytes: Buffer): Fields {
  const fields = new Map<number, FieldValue[]>();
  let at = 0;
  const readVarint = (): bigint => {
    for (let value = 0n, shift = 0n; ; shift += 7n) {
      const byte = bytes.readUInt8(at);
      at += 1;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const readValue = (wireType: number): FieldValue => {
    if (wireType === VARINT) return readVarint();
    const length = wireType === LENGTH ? Number(readVarint()) : wireType === FIXED64 ? 8 : 4;
    if (![FIXED64, LENGTH, FIXED32].includes(wireType) || at + length > bytes.length)
      throw new Error(`no protobuf: wire type ${wireType} at ${at}`);
    const value = bytes.subarray(at, at + length);
    at += length;
    if (wireType === LENGTH) return value;
    return wireType === FIXED64 ? value.readBigUInt64LE() : BigInt(value.readUInt32LE());
  };
  while (at < bytes.length) {
    const tag = Number(readVarint());
    const number = tag >> 3;
    fields.set(number, [...(fields.get(number) ?? []), readValue(tag & 7)]);
  }
  return fields;
}

export function readMessages(fields: Fields, number: number): Fields[] {
  return (fields.get(number) ?? []).map((value) => {
    if (typeof value === 'bigint') throw new Error(`field ${number} is no message`);
    return readFields(value);
  });
}

export function readBytes(fields: Fields, number: number): Buffer {
  const value = fields.get(number)?.at(-1);
  return typeof value === 'object' ? value : Buffer.alloc(0);
}

export function readText(fields: Fields, number: number): string {
  return readBytes(fields, number).toString('utf8');
}

export function readNumber(fields: Fields, number: number): bigint {
  const value = fields.get(number)?.at(-1);
  return typeof value === 'bigint' ? value : 0n;
}
