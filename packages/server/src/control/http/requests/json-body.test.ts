import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { findJsonError } from './json-body.ts';

test('the position of an error is found', () => {
  const faults: [text: string, position: number][] = [
    ['{"a":x}', 5],
    ['[1,]', 3],
    ['{"a":1}}', 7],
    ['trx', 2],
    ['', 0],
    ['{"a"', 4],
    ['"a\nb"', 2],
    ['{"a":1,', 7],
  ];
  for (const [text, position] of faults) assert.equal(findJsonError(text), position, text);
});

test('JSON has no error, and a prefix of JSON has none before its end', () => {
  fc.assert(
    fc.property(fc.json(), fc.nat(), (text, at) => {
      assert.equal(findJsonError(text), undefined);
      const cut = text.slice(0, at % text.length);
      const fault = findJsonError(cut);
      assert.ok(fault === undefined || fault === cut.length, `${JSON.stringify(cut)} at ${fault}`);
    }),
  );
});

test('a character that JSON does not have is found anywhere outside a string', () => {
  fc.assert(
    fc.property(fc.array(fc.integer(), { minLength: 1 }), fc.nat(), (numbers, at) => {
      const texts = numbers.map(String);
      const index = at % texts.length;
      const before = `[${texts
        .slice(0, index)
        .map((text) => `${text},`)
        .join('')}`;
      assert.equal(findJsonError(`${before}#${texts.slice(index).join(',')}]`), before.length);
    }),
  );
});
