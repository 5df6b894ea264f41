import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { measureJson } from './measure-json.ts';

/** Counts as the parser sees it: an empty container as if it had a value. */
function measureParsed(value: unknown): { values: number; depth: number } {
  if (typeof value !== 'object' || value === null) return { values: 1, depth: 0 };
  const members = Object.values(value).map(measureParsed);
  const values = 1 + (members.length === 0 ? 1 : members.reduce((sum, member) => sum + member.values, 0));
  return { values, depth: 1 + Math.max(0, ...members.map(({ depth }) => depth)) };
}

test('values and depth of any JSON are counted, whatever its texts contain', () => {
  const text = fc.oneof(fc.string(), fc.constantFrom('[', '{,', '\\', '\\"', '"', '\\\\"[', ']]'));
  const json = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      text,
      fc.integer(),
      fc.constant(null),
      fc.array(tie('value'), { maxLength: 5 }),
      fc.dictionary(text, tie('value'), { maxKeys: 5 }),
    ),
  })).value;
  fc.assert(
    fc.property(json, fc.constantFrom(0, 2), (value, indent) => {
      assert.deepEqual(measureJson(JSON.stringify(value, null, indent)), measureParsed(value));
    }),
  );
});

test('the measurement of text that is not JSON ends, too', () => {
  for (const text of ['', '"', '"\\', '"\\"', ']]]', '\\"[', '{"a'.repeat(1000)]) measureJson(text);
});

test('a large text takes a moment only', () => {
  const startedAt = performance.now();
  assert.equal(measureJson(`["${'\\\\'.repeat(2_000_000)}",${'{},'.repeat(100_000)}1]`).values, 200_003);
  assert.ok(performance.now() - startedAt < 2000);
});
