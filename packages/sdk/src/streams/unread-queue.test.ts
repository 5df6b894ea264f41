import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { UNREAD_LIMIT_BYTES, UnreadQueue } from './unread-queue.ts';

const MIB = 2 ** 20;

function makeQueue(canPause: boolean): { queue: UnreadQueue<string>; calls: string[] } {
  const calls: string[] = [];
  const queue = new UnreadQueue<string>({
    pause: canPause ? () => calls.push('pause') : undefined,
    resume: () => calls.push('resume'),
    onOverflow: () => calls.push('overflow'),
  });
  return { queue, calls };
}

test('a sender is paused while much is unread, and continues when it has been read', async () => {
  const { queue, calls } = makeQueue(true);
  queue.push('a', MIB);
  queue.push('b', MIB);
  assert.deepEqual(calls, ['pause']);
  assert.equal(await queue.take(), 'a');
  assert.deepEqual(calls, ['pause']);
  assert.equal(await queue.take(), 'b');
  assert.deepEqual(calls, ['pause', 'resume']);
  queue.end({ drop: false });
  assert.equal(await queue.take(), undefined);
});

test('a paused sender is resumed from time to time up to the limit, so that its pings are answered', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const { queue, calls } = makeQueue(true);
    queue.push('a', 2 * MIB);
    for (let unread = 2; unread < 80; unread += 8) {
      mock.timers.tick(10_000);
      if (calls.at(-1) === 'resume') queue.push('more', 9 * MIB);
    }
    const taken = 2 + 9 * calls.filter((call) => call === 'resume').length;
    assert.ok(taken > 60 && taken < 74, `${taken} MiB`);
    const before = calls.filter((call) => call === 'resume').length;
    mock.timers.tick(100_000);
    assert.equal(calls.filter((call) => call === 'resume').length, before);
    assert.equal(calls.includes('overflow'), false);
    queue.end({ drop: true });
    assert.equal(calls.at(-1), 'resume');
  } finally {
    mock.timers.reset();
  }
});

test('without a pause the queue overflows at the limit, which counts the memory of small messages', () => {
  const { queue, calls } = makeQueue(false);
  for (let count = 0; count < 500_000; count += 1) queue.push('x', 1);
  assert.deepEqual(calls, []);
  for (let count = 0; calls.length === 0 && count < 100_000; count += 1) queue.push('x', 1);
  assert.equal(calls[0], 'overflow');
});

test('a sender that ignores its pause causes an overflow', () => {
  const { queue, calls } = makeQueue(true);
  queue.push('a', 2 * UNREAD_LIMIT_BYTES);
  assert.deepEqual(calls, ['overflow']);
});

test('while a caller only waits for the end, the sender is not paused, and items over the limit are dropped', () => {
  const { queue, calls } = makeQueue(true);
  queue.push('a', 2 * MIB);
  queue.expectEnd();
  assert.deepEqual(calls, ['pause', 'resume']);
  queue.push('b', UNREAD_LIMIT_BYTES);
  assert.equal(queue.hasLetGo, true);
  assert.deepEqual(calls, ['pause', 'resume']);
});

test('two readers at once are refused', async () => {
  const { queue } = makeQueue(true);
  const first = queue.take();
  await assert.rejects(queue.take(), TypeError);
  queue.push('a', 1);
  assert.equal(await first, 'a');
});
