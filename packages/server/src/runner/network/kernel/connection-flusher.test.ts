import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildFlushRequest, parseAcknowledgement } from './connection-flusher.ts';

test('a request deletes the connections of exactly one mark', () => {
  assert.equal(
    buildFlushRequest(0x1a_2b_00_01, 5).toString('hex'),
    // length 36, ctnetlink delete, request+ack, sequence 5 | family IPv4 | mark | mask
    '24000000' +
      '0201' +
      '0500' +
      '05000000' +
      '00000000' +
      '02000000' +
      '08000800' +
      '1a2b0001' +
      '08001500' +
      'ffffffff',
  );
});

test('an acknowledgement yields its error number, and any other message is refused', () => {
  const answer = Buffer.alloc(36);
  answer.writeUInt16LE(2, 4);
  answer.writeUInt32LE(5, 8);
  assert.equal(parseAcknowledgement(answer, 5), 0);
  answer.writeInt32LE(-95, 16);
  assert.equal(parseAcknowledgement(answer, 5), 95);
  assert.throws(() => parseAcknowledgement(answer, 6), { code: 'internal' });
  assert.throws(() => parseAcknowledgement(answer.subarray(0, 12), 5), { code: 'internal' });
});
