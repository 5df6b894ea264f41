/**
 * Measures lists and sums over a history of 100,000 sandboxes, against a request for which the same server only looks
 * up the key. Needs no VM: the runner is the tests' fake, which none of these calls use.
 */
import { startHarness } from '../packages/server/src/control/testing/control-harness.ts';
import { insertEnded } from '../packages/server/src/control/testing/many-ended.ts';
import { interleave, summarize, timeMs } from './fixtures/measure.ts';
import { report, type Figure } from './fixtures/report.ts';

const COUNT = 100_000;
const ROUNDS = 200;
const EMPTY = 'a request for nothing (the key, and 404)';

const month = new Date().toISOString().slice(0, 7);
const CALLS: readonly [name: string, path: string, goal: string][] = [
  ['usage', '/v1/usage', 'p95 < 50 ms'],
  ['history, newest 100', '/v1/runs/history', 'p95 < 50 ms'],
  ['history, 500', '/v1/runs/history?limit=500', '–'],
  ['history, by a label of one in a thousand', '/v1/runs/history?label=job:rare', 'p95 < 50 ms'],
  [
    'history, by an image of one in fifty',
    '/v1/runs/history?image=docker.io/library/image-7:1',
    'p95 < 50 ms',
  ],
  ['statement of this month', `/v1/statements/${month}`, '–'],
];

export async function benchHistory(): Promise<Figure[]> {
  await using harness = await startHarness({ requestsPerSecond: 0 });
  {
    await using db = harness.openDatabase();
    await insertEnded(db, COUNT);
  }
  const ask = (path: string) => () => timeMs(() => harness.call('GET', path));
  const values = await interleave(
    [{ name: EMPTY, run: ask('/v1/nothing') }, ...CALLS.map(([name, path]) => ({ name, run: ask(path) }))],
    ROUNDS,
  );
  const floor = summarize(EMPTY, 'ms', values.get(EMPTY) ?? []);
  return CALLS.map(([name, , goal]) => {
    const ours = summarize(name, 'ms', values.get(name) ?? []);
    const ratio = ours.median / floor.median;
    return { name: `${name}, of ${COUNT}`, against: EMPTY, ratio, goal, samples: [ours, floor] };
  });
}

if (import.meta.main) report('history', 'no virtual machine', await benchHistory());
