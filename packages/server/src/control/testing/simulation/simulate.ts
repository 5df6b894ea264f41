/** The program of `npm run soak -- --simulated`: one seed after the other, each from an empty installation. */
import { parseArgs } from 'node:util';
import { Simulation } from './simulation.ts';

const SEED_MS = 120_000;

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '5' }, seed: { type: 'string', default: '1' } },
});
const first = Number(values.seed);
const endAt = performance.now() + Number(values.minutes) * 60_000;
try {
  for (let seed = first; performance.now() < endAt; seed += 1) {
    const seedEndAt = Math.min(endAt, performance.now() + SEED_MS);
    const { steps, rests, simulatedHours } = await Simulation.run(seed, () => performance.now() > seedEndAt);
    const hours = simulatedHours.toFixed(1);
    process.stdout.write(
      `seed ${seed}: ${steps} steps in ${hours} simulated hours, all invariants held ${rests} times\n`,
    );
  }
} catch (error) {
  process.stdout.write(
    `${error instanceof Error ? `${error.stack}\n${String(error.cause)}` : String(error)}\n`,
  );
  process.exitCode = 1;
}
