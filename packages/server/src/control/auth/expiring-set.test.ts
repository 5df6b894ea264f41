import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ExpiringSet } from './expiring-set.ts';

const LIFE_MS = 300_000;

test('whatever is added and forgotten, a value is accepted once until it expires', () => {
  const step = fc.record({ value: fc.nat({ max: 30 }), passMs: fc.nat({ max: 20_000 }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const set = new ExpiringSet();
      const model = new Map<string, number>();
      let now = 1_700_000_000_000;
      for (const { value, passMs } of steps) {
        now += passMs;
        // As for tickets: a value has one time of expiry.
        const name = `${value}`;
        const expiresAt = model.get(name) ?? now + LIFE_MS - value * 7000;
        if (expiresAt <= now) continue;
        set.forget(now);
        assert.equal(set.add(name, expiresAt), !model.has(name), name);
        model.set(name, expiresAt);
      }
    }),
  );
});

test('the work of forgetting does not grow with the number of values, and all expired values are gone', () => {
  const set = new ExpiringSet();
  const looked: number[] = [];
  const COUNT = 50_000;
  for (let index = 0; index < COUNT; index += 1) {
    looked.push(set.forget(index * 10));
    assert.ok(set.add(`${index}`, index * 10 + LIFE_MS));
  }
  assert.equal(Math.max(...looked), LIFE_MS / 10_000 + 1);
  assert.ok(set.size >= LIFE_MS / 10, `${set.size}`);
  assert.ok(set.size <= LIFE_MS / 10 + 1000, `${set.size}`);
  set.forget(COUNT * 10 + LIFE_MS + 10_000);
  assert.equal(set.size, 0);
});

test('a forgotten value is not accepted again when the clock is set back', () => {
  const set = new ExpiringSet();
  assert.equal(set.add('once', 15_000), true);
  set.forget(20_000);
  assert.equal(set.size, 0);
  assert.equal(set.add('once', 15_000), false);
  assert.equal(set.add('other', 20_000), true);
});
