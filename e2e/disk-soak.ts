/**
 * Cycles of synced writes to a persistent disk and SIGKILL of a random process at a random step. Not a test: `npm run
 * soak -- --disks N` runs it. Ends with 1 at the first cycle that loses something. The seed repeats the choices.
 */
import { parseArgs } from 'node:util';
import { SeededChoice } from '../packages/server/src/control/testing/seeded-choice.ts';
import { CrashingDisk, DISK_CRASH_STEPS, DISK_VICTIMS, type DiskCrash } from './fixtures/disks/disk-crash.ts';
import { STORES, startWithStore } from './fixtures/disks/disk-store.ts';
import { Holds } from './fixtures/faults/holds.ts';
import { assertConsistent } from './fixtures/host/inventory.ts';

/** A new disk, so that also its creation and its end are tried. */
const CYCLES_EACH = 25;
const LONGEST_LULL_MS = 2000;

const { values } = parseArgs({
  options: { cycles: { type: 'string', default: '1000' }, seed: { type: 'string', default: '1' } },
});
const seed = Number(values.seed);
const cycles = Number(values.cycles);
const choice = new SeededChoice(seed);

function say(text: string): void {
  process.stdout.write(`${new Date().toISOString()} ${text}\n`);
}

function choose(): DiskCrash {
  const victim = choice.of(DISK_VICTIMS);
  return choice.below(2) === 0 ? { victim } : { victim, step: choice.of(DISK_CRASH_STEPS) };
}

async function soak(): Promise<void> {
  using holds = new Holds();
  const env = { COPPICE_FAULT_DIR: holds.directory };
  await using started = await startWithStore(choice.of(STORES), { instance: 9, env });
  let disk: CrashingDisk | undefined;
  for (let cycle = 0; cycle < cycles; cycle += 1) {
    if (cycle % CYCLES_EACH === 0) {
      await disk?.end();
      const name = `disk-${cycle}`;
      await started.disks.create(name);
      disk = new CrashingDisk(started.disks, holds, name);
    }
    await choice.pause(LONGEST_LULL_MS);
    const crash = choose();
    const startedAt = performance.now();
    await disk?.crash(crash);
    const tookMs = Math.round(performance.now() - startedAt);
    say(
      `cycle ${cycle + 1}: ${crash.victim}${crash.step === undefined ? '' : ` at ${crash.step}`}, ${tookMs} ms`,
    );
  }
  await disk?.end();
  await assertConsistent(started.disks.api);
}

say(`seed ${seed}`);
try {
  await soak();
  say(`${cycles} cycles; nothing lost, nothing left`);
} catch (error) {
  say(`failed with seed ${seed}: ${error instanceof Error ? error.stack : String(error)}`);
  process.exitCode = 1;
}
