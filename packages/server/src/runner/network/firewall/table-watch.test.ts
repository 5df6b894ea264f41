import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseDeletedTables } from './table-watch.ts';

function message(type: number, attributes: [number, string][]): Buffer {
  const parts = attributes.map(([kind, text]) => {
    const payload = Buffer.from(`${text}\0`);
    const attribute = Buffer.alloc((4 + payload.length + 3) & ~3);
    attribute.writeUInt16LE(4 + payload.length, 0);
    attribute.writeUInt16LE(kind, 2);
    payload.copy(attribute, 4);
    return attribute;
  });
  const header = Buffer.alloc(20);
  const whole = Buffer.concat([header, ...parts]);
  whole.writeUInt32LE(whole.length, 0);
  whole.writeUInt16LE(type, 4);
  return whole;
}

const TABLE_ADDED = 0x0a_00;
const TABLE_DELETED = 0x0a_02;

test('deleted tables are found anywhere in a datagram', () => {
  const datagram = Buffer.concat([
    message(TABLE_ADDED, [[1, 'added']]),
    message(TABLE_DELETED, [[1, 'first']]),
    message(TABLE_DELETED, [
      [2, 'not the name'],
      [1, 'second'],
    ]),
  ]);
  assert.deepEqual(parseDeletedTables(datagram), ['first', 'second']);
});

test('truncated or malformed datagrams end the list and never throw', () => {
  const datagram = message(TABLE_DELETED, [[1, 'table']]);
  assert.deepEqual(parseDeletedTables(datagram.subarray(0, datagram.length - 1)), []);
  const anyBytes = fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes));
  fc.assert(
    fc.property(anyBytes, (bytes) => Array.isArray(parseDeletedTables(Buffer.concat([datagram, bytes])))),
  );
});
