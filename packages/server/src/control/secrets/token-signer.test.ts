import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { TokenSigner } from './token-signer.ts';

const KEY = randomBytes(32);
const schema = z.strictObject({ n: z.int(), text: z.string() });
const build = (purpose: string, key = KEY) => new TokenSigner(key, { purpose, schema });

test('a signed token is verified, and its form is valid in a URL and in a cookie', () => {
  fc.assert(
    fc.property(fc.integer(), fc.string({ unit: 'grapheme', maxLength: 100 }), (n, text) => {
      const token = build('a').sign({ n, text });
      assert.match(token, /^[\w.-]+$/u);
      assert.deepEqual(build('a').verify(token), { n, text });
    }),
  );
});

test('a token of another purpose, of another key, or with a changed character is invalid', () => {
  const token = build('a').sign({ n: 1, text: 'x' });
  assert.equal(build('b').verify(token), undefined);
  assert.equal(build('a', randomBytes(32)).verify(token), undefined);
  for (let index = 0; index < token.length - 1; index += 1) {
    const changed = `${token.slice(0, index)}${token[index] === 'A' ? 'B' : 'A'}${token.slice(index + 1)}`;
    assert.equal(build('a').verify(changed), undefined, `changed at ${index}`);
  }
});

test('any other text is an invalid token', () => {
  fc.assert(fc.property(fc.string({ maxLength: 300 }), (text) => build('a').verify(text) === undefined));
  assert.equal(build('a').verify(''), undefined);
  assert.equal(build('a').verify('.'), undefined);
  assert.equal(build('a').verify(`${'x'.repeat(1e6)}.y`), undefined);
});
