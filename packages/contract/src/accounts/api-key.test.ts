import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildApiKey, generateApiKey, isRegionName, parseApiKey } from './api-key.ts';

test('a generated key parses back to its region and last four characters', () => {
  const key = generateApiKey('us');
  assert.match(key, /^cop_live_us_[0-9A-Za-z]{40}$/);
  assert.deepEqual(parseApiKey(key), { region: 'us', last4: key.slice(-4) });
});

test('two generated keys differ', () => {
  assert.notEqual(generateApiKey('eu'), generateApiKey('eu'));
});

test('the same bytes give the same key, and those that would favour characters are skipped', () => {
  const asked: number[] = [];
  const next = (size: number): Uint8Array => {
    asked.push(size);
    return Uint8Array.from({ length: size }, (_, index) => (index % 2 === 0 ? 255 : 62 + index));
  };
  const key = buildApiKey('us', next);
  assert.equal(key, buildApiKey('us', next));
  // Half of the bytes are skipped, so each key needs two rounds.
  assert.equal(asked.length, 4);
  assert.match(key, /^cop_live_us_1357/u);
  assert.ok(parseApiKey(key));
});

test('text that is not exactly a key does not parse', () => {
  const key = generateApiKey('us');
  for (const text of ['', 'cop_live_us_', key.slice(1), `${key}x`, `${key}\n`, key.replace('us', 'US')]) {
    assert.equal(parseApiKey(text), undefined, text);
  }
});

test('a region that would break the key format is refused', () => {
  assert.ok(!isRegionName('us_east'));
  assert.throws(() => generateApiKey('us_east'), RangeError);
});
