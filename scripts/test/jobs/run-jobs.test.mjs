import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { test } from 'node:test';
import { setImmediate as immediate } from 'node:timers/promises';
import { runJobs } from './run-jobs.mjs';

/** @typedef {import('./run-jobs.mjs').Job} Job */

/**
 * @param {string} title
 * @param {Job['place']} place
 * @param {number} seconds
 * @returns {Job}
 */
function jobOf(title, place, seconds) {
  return {
    suite: 'a',
    title,
    place,
    seconds,
    run: () => assert.fail('runJobs must call the function that it receives'),
  };
}

test('the longest job of each place starts first; alone, heavy and spare jobs come last, in this order', async () => {
  /** @type {string[]} */
  const begun = [];
  let running = 0;
  const jobs = [
    jobOf('alone', 'alone', 999),
    jobOf('heavy', 'heavy', 999),
    jobOf('spare', 'spare', 999),
    jobOf('single', 'single', 1),
    jobOf('short', 'lane', 5),
    jobOf('long', 'lane', 500),
    jobOf('beside short', 'beside', 1),
    jobOf('beside long', 'beside', 2),
  ];
  await runJobs(jobs, 1, async ({ title }) => {
    begun.push(title);
    running += 1;
    await immediate();
    if (title === 'alone') assert.equal(running, 1);
    running -= 1;
  });
  assert.deepEqual(begun.toSorted(), jobs.map(({ title }) => title).toSorted());
  assert.deepEqual(begun.slice(-3), ['alone', 'heavy', 'spare']);
  assert.ok(begun.indexOf('single') < begun.indexOf('long'));
  assert.ok(begun.indexOf('long') < begun.indexOf('short'));
  assert.ok(begun.indexOf('beside long') < begun.indexOf('beside short'));
});

test('each lane takes its next job as it finishes one, and then takes jobs that need no lane', async () => {
  const jobs = ['long', 'a', 'b'].map((title, index) => jobOf(title, 'lane', 100 - index));
  const besides = ['long beside', 'c', 'd'].map((title, index) => jobOf(title, 'beside', 3 - index));
  const othersDone = new EventEmitter();
  let left = jobs.length + besides.length - 2;
  /** @type {[string, number][]} */
  const log = [];
  await runJobs([...jobs, ...besides], 2, async ({ title }, lane) => {
    log.push([title, lane]);
    if (title.startsWith('long')) {
      await once(othersDone, 'done');
      return;
    }
    await immediate();
    if ((left -= 1) === 0) othersDone.emit('done');
  });
  assert.deepEqual(
    log.filter(([title]) => ['a', 'b', 'c'].includes(title)),
    [
      ['a', 1],
      ['b', 1],
      ['c', 1],
    ],
  );
  assert.deepEqual(log.map(([title]) => title).toSorted(), ['a', 'b', 'c', 'd', 'long', 'long beside']);
});

test('one more lane starts when no other job is left', { timeout: 10_000 }, async () => {
  const jobs = [
    ...['first', 'second', 'third'].map((title) => jobOf(title, 'lane', 1)),
    jobOf('beside', 'beside', 1),
    jobOf('single', 'single', 1),
  ];
  const done = new EventEmitter();
  /** @type {[string, number][]} */
  const log = [];
  await runJobs(jobs, 2, async ({ title }, lane) => {
    log.push([title, lane]);
    if (title === 'third') done.emit('done');
    else if (title === 'first' || title === 'second') await once(done, 'done');
    else await immediate();
  });
  const lanes = log.slice(-3).map(([, lane]) => lane);
  assert.equal(new Set(lanes).size, 3);
});

test('jobs that run at the same time have different lanes', async () => {
  const places = /** @type {const} */ (['lane', 'beside']);
  const jobs = places.flatMap((place) => Array.from({ length: 20 }, (_, n) => jobOf(`${n}`, place, n)));
  const busy = new Set();
  await runJobs(jobs, 2, async (_job, lane) => {
    assert.ok(!busy.has(lane), `lane ${lane}`);
    busy.add(lane);
    await immediate();
    busy.delete(lane);
  });
});
