import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PruneRun } from './prune-run.ts';

const explain = (error: unknown): string => (error as Error).message;

test('at most four sandboxes are destroyed at a time, in their order', async () => {
  const asked: string[] = [];
  let busy = 0;
  let most = 0;
  const run = new PruneRun(async (id) => {
    asked.push(id);
    most = Math.max(most, (busy += 1));
    await Promise.resolve();
    busy -= 1;
  }, explain);
  const ids = Array.from({ length: 9 }, (_, index) => `run${index}`);
  await run.run(ids);
  assert.deepEqual(asked, ids);
  assert.equal(most, 4);
  assert.deepEqual(run.stateOf('run8'), { state: 'done' });
});

test('a failure stops nothing, keeps its reason, and is tried again by the next run only', async () => {
  let isBroken = true;
  const asked: string[] = [];
  const run = new PruneRun(async (id) => {
    asked.push(id);
    if (id === 'b' && isBroken) throw new Error('it is busy');
  }, explain);
  await assert.rejects(run.run(['a', 'b', 'c']), /1 of 3 sandboxes could not be destroyed/u);
  assert.deepEqual(run.stateOf('b'), { state: 'failed', reason: 'it is busy' });
  assert.deepEqual(run.stateOf('c'), { state: 'done' });
  isBroken = false;
  await run.run(['a', 'b', 'c']);
  assert.deepEqual(asked, ['a', 'b', 'c', 'b']);
});
