import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Simulation } from './simulation.ts';

const SECONDS_EACH = 50;
/** Simulations in parallel, as each mostly waits. */
const AT_ONCE = 2;
/** The same in each run; `npm run soak -- --simulated` tries others. */
const SEEDS = [1, 2, 3, 4];

describe(
  'after any faults, nothing that was answered is missing and nothing is billed twice',
  {
    concurrency: AT_ONCE,
  },
  () => {
    for (const seed of SEEDS)
      test(`with seed ${seed}`, async (t) => {
        const end = performance.now() + SECONDS_EACH * 1000;
        const { rests, steps, simulatedHours } = await Simulation.run(seed, () => performance.now() > end);
        t.diagnostic(`${steps} steps in ${simulatedHours.toFixed(1)} simulated hours`);
        assert.ok(rests > 0);
      });
  },
);
