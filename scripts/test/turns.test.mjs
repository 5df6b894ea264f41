import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chooseTurn, describeTurn, takeTurn, TURNS } from './turns.mjs';

const NUMBERS = Array.from({ length: TURNS }, (_, index) => index + 1);
const DAY_MS = 86_400_000;

test('each slow file runs in exactly one turn, and the others in all', () => {
  const slow = Array.from({ length: 20 }, (_, index) => `slow-${index}.test.ts`);
  const times = new Map([
    ...slow.map((file, index) => /** @type {const} */ ([file, 50 + index])),
    ['fast.test.ts', 25],
    ['e2e/fixtures/slow.ts', 400],
  ]);
  const leftOut = NUMBERS.map((number) => takeTurn(times, number).leftOut);
  for (const file of slow) assert.equal(leftOut.filter((files) => !files.has(file)).length, 1, file);
  assert.ok(leftOut.every((files) => !files.has('fast.test.ts') && !files.has('e2e/fixtures/slow.ts')));
  const seconds = leftOut.map((files) => [...files].reduce((sum, file) => sum + (times.get(file) ?? 0), 0));
  assert.ok(Math.max(...seconds) < 1.2 * Math.min(...seconds), seconds.join(' '));
});

test('the turn follows the day, or is chosen', () => {
  const days = NUMBERS.map((day) => chooseTurn(undefined, day * DAY_MS));
  assert.deepEqual(new Set(days), new Set(NUMBERS));
  assert.equal(chooseTurn(undefined, DAY_MS), chooseTurn(undefined, 2 * DAY_MS - 1));
  assert.equal(chooseTurn('2', 0), 2);
  for (const wrong of ['0', String(TURNS + 1), '1.5', 'x'])
    assert.throws(() => chooseTurn(wrong, 0), {
      message: `COPPICE_TEST_TURN=${wrong}: there is no such turn`,
      remedy: `use a number from 1 to ${TURNS}`,
    });
});

test('a run names what it leaves out', () => {
  const turn = takeTurn(
    new Map([
      ['a.test.ts', 90],
      ['b.test.ts', 80],
      ['c.test.ts', 70],
    ]),
    2,
  );
  assert.match(
    describeTurn(turn),
    /^turn 2 of 4: these 2 slow files .*\n {2}a\.test\.ts\n {2}c\.test\.ts\n$/u,
  );
});
