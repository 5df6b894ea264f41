/**
 * Random work on a real service while random parts of it are killed at random steps; not one of the tests, `npm run
 * soak`. Every round ends with rest, in which SQL, runner, processes, kernel and files must agree. Ends with 1 on the
 * first disagreement, on any 500, and on a sandbox that lost what it was given. The seed gives the same choices again,
 * though not the same interleaving.
 */
import { parseArgs } from 'node:util';
import { RECORD_STEPS } from '../packages/server/src/control/sandbox/steps.ts';
import { STEPS } from '../packages/server/src/runner/driver/steps.ts';
import { Api } from './fixtures/api.ts';
import { Holds, type HeldStep } from './fixtures/holds.ts';
import { assertConsistent } from './fixtures/inventory.ts';
import { Service } from './fixtures/service.ts';
import { SoakWorker, type Tally } from './fixtures/soak-worker.ts';
import { SeededChoice } from './fixtures/seeded-choice.ts';
import { kill, VICTIMS } from './fixtures/victims.ts';

const ROUND_MS = 45_000;
const WORKERS = 3;
const SETTLE_MS = 90_000;
const LONGEST_LULL_MS = 4_000;
const REACH_MS = 6_000;
const STEP_NAMES = [...Object.keys(STEPS), ...Object.keys(RECORD_STEPS)] as HeldStep[];

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '5' }, seed: { type: 'string' } },
});
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
const endAt = performance.now() + Number(values.minutes) * 60_000;
const choice = new SeededChoice(seed);

function say(text: string): void {
  process.stdout.write(`${new Date().toISOString()} ${text}\n`);
}

/** Kills somebody, as often as not exactly at a step. */
async function strike(service: Service, holds: Holds): Promise<string> {
  const victim = choice.of(VICTIMS);
  const step = choice.below(2) === 0 ? undefined : choice.of(STEP_NAMES);
  // One of the QEMUs, not all: the others' sandboxes must notice nothing.
  const pids = service.vmPids();
  const chosen = choice.of(pids);
  const spared = pids.filter((pid) => pid !== chosen);
  using hold = step === undefined ? undefined : holds.hold(step);
  const isReached = await hold?.reached(REACH_MS).then(
    () => true,
    () => false,
  );
  await kill(victim, service, spared);
  hold?.release();
  return `${victim}${isReached === true ? ` at ${step}` : ''}`;
}

async function runRound(service: Service, holds: Holds, workers: SoakWorker[]): Promise<void> {
  const roundEnd = Math.min(performance.now() + ROUND_MS, endAt);
  const isOver = (): boolean => performance.now() >= roundEnd;
  const working = Promise.all(workers.map((worker) => worker.work(isOver)));
  const deaths: string[] = [];
  while (!isOver()) {
    await choice.pause(LONGEST_LULL_MS);
    deaths.push(await strike(service, holds));
  }
  await working;
  say(`killed: ${deaths.join(', ')}`);
}

async function rest(api: Api, workers: SoakWorker[]): Promise<void> {
  const { service } = api;
  await service.waitFor('/healthz', SETTLE_MS, async () => (await service.health()) === 200);
  const { units } = await assertConsistent(api, SETTLE_MS);
  for (const worker of workers) await worker.checkOwn();
  say(`consistent, ${units.length} sandboxes alive`);
}

async function soak(): Promise<void> {
  using holds = new Holds();
  await using service = await Service.start({ instance: 9, env: { COPPICE_FAULT_DIR: holds.directory } });
  const api = new Api(service);
  const tally: Tally = { requests: 0, refused: 0 };
  const workers = Array.from({ length: WORKERS }, () => new SoakWorker(api, choice, tally));
  try {
    while (performance.now() < endAt) {
      await runRound(service, holds, workers);
      await rest(api, workers);
    }
    for (const worker of workers) await worker.destroyAll();
    const { units } = await assertConsistent(api, SETTLE_MS);
    if (units.length > 0) throw new Error(`sandboxes that nobody has: ${JSON.stringify(units)}`);
  } finally {
    holds.releaseAll();
  }
  say(`${tally.requests} requests, ${tally.refused} of them refused for a while; nothing lost, nothing left`);
}

say(`seed ${seed}`);
try {
  await soak();
} catch (error) {
  say(`failed with seed ${seed}: ${error instanceof Error ? error.stack : String(error)}`);
  process.exitCode = 1;
}
