import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { DNS_RCODE } from './dns-header.ts';
import { buildErrorAnswer, classifyQuery, findQuestion, isAnswerTo, withId } from './dns-message.ts';

function buildQuery(labels: string[], options: { id?: number; flags?: number; tail?: Buffer } = {}): Buffer {
  const header = Buffer.alloc(12);
  header.writeUInt16BE(options.id ?? 0x12_34, 0);
  header.writeUInt16BE(options.flags ?? 0x01_00, 2);
  header.writeUInt16BE(1, 4);
  const name = labels.map((label) =>
    Buffer.concat([Buffer.from([label.length]), Buffer.from(label, 'latin1')]),
  );
  return Buffer.concat([header, ...name, Buffer.from([0, 0, 1, 0, 1]), options.tail ?? Buffer.alloc(0)]);
}

const anyBytes = fc.uint8Array({ maxLength: 600 }).map((bytes) => Buffer.from(bytes));
const anyLabel = fc.string({ unit: 'binary-ascii', minLength: 1, maxLength: 63 });

test('a question is found with any data after it', () => {
  const anyLabels = fc.array(anyLabel, { maxLength: 3 });
  fc.assert(
    fc.property(anyLabels, anyBytes, (labels, tail) => {
      const bare = buildQuery(labels);
      assert.deepEqual(findQuestion(buildQuery(labels, { tail })), bare.subarray(12));
      assert.deepEqual(classifyQuery(bare), { kind: 'forward' });
    }),
  );
});

test('the parser never throws and never answers an answer', () => {
  fc.assert(
    fc.property(anyBytes, anyBytes, (bytes, other) => {
      const verdict = classifyQuery(bytes);
      isAnswerTo(bytes.length >= 12 ? bytes : buildQuery(['a']), other);
      if (verdict.kind !== 'refuse') return;
      const answer = buildErrorAnswer(bytes, verdict.rcode);
      assert.deepEqual(classifyQuery(answer), { kind: 'ignore' });
      assert.equal(answer.readUInt16BE(0), bytes.readUInt16BE(0));
    }),
  );
});

test('queries that cannot be forwarded are refused with the matching code', () => {
  const whole = buildQuery(['example', 'com']);
  const refuse = (rcode: number) => ({ kind: 'refuse', rcode });
  assert.deepEqual(classifyQuery(whole.subarray(0, whole.length - 1)), refuse(DNS_RCODE.formatError));
  assert.deepEqual(classifyQuery(buildQuery(['a'.repeat(64)])), refuse(DNS_RCODE.formatError));
  assert.deepEqual(classifyQuery(buildQuery(Array(5).fill('a'.repeat(63)))), refuse(DNS_RCODE.formatError));
  assert.deepEqual(classifyQuery(buildQuery(['a'], { flags: 0x28_00 })), refuse(DNS_RCODE.notImplemented));
  const two = Buffer.from(whole);
  two.writeUInt16BE(2, 4);
  assert.deepEqual(classifyQuery(two), refuse(DNS_RCODE.formatError));
  assert.deepEqual(classifyQuery(Buffer.alloc(11)), { kind: 'ignore' });
});

test('an answer belongs to a query when id and question agree', () => {
  const query = buildQuery(['Example', 'com']);
  assert.ok(isAnswerTo(query, buildQuery(['eXAMPLE', 'com'], { flags: 0x81_80 })));
  assert.ok(!isAnswerTo(query, buildQuery(['example', 'com'])), 'a query is not an answer');
  assert.ok(!isAnswerTo(query, buildQuery(['example', 'org'], { flags: 0x81_80 })));
  assert.ok(!isAnswerTo(query, withId(buildQuery(['example', 'com'], { flags: 0x81_80 }), 1)));
  const bareError = Buffer.from('123481820000000000000000', 'hex');
  assert.ok(isAnswerTo(query, bareError), 'an error may omit the question');
  assert.ok(!isAnswerTo(query, Buffer.from('123481800000000000000000', 'hex')));
});

test('an error answer repeats id, question and the recursion-desired flag', () => {
  const query = buildQuery(['example']);
  const answer = buildErrorAnswer(query, DNS_RCODE.serverFailure);
  assert.equal(answer.readUInt16BE(2), 0x81_82);
  assert.deepEqual(findQuestion(answer), findQuestion(query));
  assert.ok(isAnswerTo(query, answer));
});
