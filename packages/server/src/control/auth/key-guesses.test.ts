import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { KeyGuesses } from './key-guesses.ts';

const HOUR_MS = 3_600_000;

function build() {
  const clock = { now: 0 };
  const guesses = new KeyGuesses({ failuresPerMinute: 3, share: (limit) => limit, now: () => clock.now });
  const good = new Set(['Bearer good']);
  let lookUps = 0;
  const ask = async (authorization: string | undefined, address = '192.0.2.1') => {
    try {
      return await guesses.check(address, { authorization }, async () => {
        lookUps += 1;
        if (authorization === undefined || !good.has(authorization)) throw new AppError('unauthorized', 'no');
        return 'ok';
      });
    } catch (error) {
      return (error as AppError).code;
    }
  };
  return { clock, ask, good, lookUps: () => lookUps };
}

async function guess(ask: (authorization: string) => Promise<string>, times: number): Promise<string[]> {
  const answers = [];
  for (let round = 0; round < times; round += 1) answers.push(await ask(`Bearer ${round}`));
  return answers;
}

test('after too many wrong keys, keys from the address are not looked up until a minute has passed', async () => {
  const { clock, ask, lookUps } = build();
  assert.deepEqual(await guess(ask, 5), [
    'unauthorized',
    'unauthorized',
    'unauthorized',
    'rate_limited',
    'rate_limited',
  ]);
  assert.equal(lookUps(), 3);
  assert.equal(await ask('Bearer x', '192.0.2.2'), 'unauthorized');
  clock.now += 60_000;
  assert.equal(await ask('Bearer good'), 'ok');
});

test('a recently valid key is not refused because of wrong keys from the same address', async () => {
  const { clock, ask } = build();
  assert.equal(await ask('Bearer good'), 'ok');
  await guess(ask, 4);
  assert.equal(await ask('Bearer good'), 'ok');
  clock.now += HOUR_MS;
  await guess(ask, 4);
  assert.equal(await ask('Bearer good'), 'rate_limited');
});

test('a recently valid key counts as wrong once it is revoked', async () => {
  const { ask, good } = build();
  await ask('Bearer good');
  good.clear();
  await guess(ask, 2);
  assert.equal(await ask('Bearer good'), 'unauthorized');
  assert.equal(await ask('Bearer good'), 'rate_limited');
});

test('a request without a key is not counted as a guess', async () => {
  const { ask } = build();
  for (let round = 0; round < 9; round += 1) assert.equal(await ask(undefined), 'unauthorized');
});
