import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OPERATIONS, SANDBOX_OPERATIONS, type SandboxOperation } from '@coppice/contract';
import fc from 'fast-check';
import { listChildIds, newForkId } from '../record/ids.ts';
import { OperationTurns } from './operation-turns.ts';

test('in any order of requests one operation is under way at a time, and all of them run', async () => {
  const task = fc.record({
    operation: fc.constantFrom(...SANDBOX_OPERATIONS),
    ticks: fc.nat({ max: 5 }),
    isFailing: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(task, { maxLength: 20 }), async (tasks) => {
      const turns = new OperationTurns();
      const done: SandboxOperation[] = [];
      let underWay = 0;
      const runs = tasks.map(({ operation, ticks, isFailing }) =>
        turns.run(
          () =>
            turns.hold(operation, async () => {
              underWay += 1;
              assert.equal(underWay, 1);
              assert.equal(turns.current, operation);
              assert.ok(operation === 'resuming' || !turns.admits('resume') || operation === 'hibernating');
              for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve();
              underWay -= 1;
              done.push(operation);
              if (isFailing) throw new Error('it fails');
            }),
          false,
        ),
      );
      await Promise.allSettled(runs);
      assert.deepEqual(
        done,
        tasks.map(({ operation }) => operation),
      );
      assert.equal(turns.current, null);
      assert.equal(turns.count, 2 * tasks.length);
    }),
  );
});

test('waiting for the end of an operation ends with it, also when it fails', async () => {
  const turns = new OperationTurns();
  await turns.ended;
  const gate = Promise.withResolvers<void>();
  const failing = turns.run(() => turns.hold('resuming', () => gate.promise), false);
  await Promise.resolve();
  assert.ok(turns.admits(OPERATIONS.destroying.request));
  const { ended } = turns;
  gate.reject(new Error('no room'));
  await assert.rejects(failing, /no room/);
  await ended;
  assert.equal(turns.current, null);
});

test('the number of waiting callers is limited, that of the service is not', async () => {
  const turns = new OperationTurns();
  const gate = Promise.withResolvers<void>();
  const first = turns.run(() => gate.promise, false);
  const waiting = Array.from({ length: 63 }, () => turns.run(async () => undefined, true));
  await assert.rejects(
    turns.run(async () => undefined, true),
    { code: 'rate_limited' },
  );
  const own = turns.run(async () => 'done', false);
  gate.resolve();
  await Promise.all([first, ...waiting]);
  assert.equal(await own, 'done');
});

test('the ids of the children are derived from the fork, have the form of sandbox ids, and are unique', () => {
  const forkId = newForkId();
  const ids = listChildIds(forkId, 100);
  assert.deepEqual(ids.slice(0, 7), listChildIds(forkId, 7));
  assert.equal(new Set([...ids, ...listChildIds(newForkId(), 100)]).size, 200);
  for (const id of ids) assert.match(id, /^run[0-9a-f]{20}$/);
});
