import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LayerSpace } from './layer-space.ts';

const MIB = 1024 ** 2;

test('the layer that has taken its share fails when all together take half of what is free', async () => {
  let free = 1000 * MIB;
  const space = new LayerSpace(() => Promise.resolve(free));
  using large = space.open('/', 100 * MIB);
  using small = space.open('/', 100 * MIB);
  const write = async (room: { take: (bytes: number) => Promise<void> }, bytes: number) => {
    await room.take(bytes);
    free -= bytes;
  };
  for (let taken = 0; taken < 400; taken += 10) await write(large, 10 * MIB);
  await write(small, 10 * MIB);
  for (let taken = 0; taken < 30; taken += 10) await write(large, 10 * MIB);
  await assert.rejects(
    (async () => {
      for (let taken = 0; taken < 100; taken += 10) await write(large, 10 * MIB);
    })(),
    { code: 'capacity' },
  );
  // The small one continues.
  await write(small, 10 * MIB);
});

test('what is disposed counts no more', async () => {
  const space = new LayerSpace(() => Promise.resolve(150 * MIB));
  const first = space.open('/', 0);
  await first.take(100 * MIB);
  first[Symbol.dispose]();
  using second = space.open('/', 0);
  await second.take(100 * MIB);
  await assert.rejects(second.take(60 * MIB), { code: 'capacity' });
});
