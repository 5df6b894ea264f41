import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Simulation } from './simulation.ts';

const SECONDS_EACH = 45;
/** The same each time; `npm run soak -- --simulated` tries others. */
const SEEDS = [1, 2, 3, 4];

for (const seed of SEEDS)
  test(`whatever happens by seed ${seed}, nothing that was answered is missing and nothing is billed twice`, async (t) => {
    const end = performance.now() + SECONDS_EACH * 1000;
    const { rests, steps, simulatedHours } = await Simulation.run(seed, () => performance.now() > end);
    t.diagnostic(`${steps} steps in ${simulatedHours.toFixed(1)} simulated hours`);
    assert.ok(rests > 0);
  });
