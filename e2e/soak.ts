/**
 * Random work on a real service while random processes of it are killed at random steps. Not a test: `npm run soak`
 * runs it. After every round of work all workers rest. Then the invariants of the simulation must hold, and SQL, runner,
 * processes, kernel and files must agree. Ends with 1 on the first violation, on any 500, and on a sandbox that lost
 * its file. The seed repeats the choices, but not the interleaving.
 */
import { parseArgs } from 'node:util';
import type { SnapshotRecord } from '@coppice/contract';
import { RECORD_STEPS } from '../packages/server/src/control/sandbox/record/steps.ts';
import {
  assertInvariants,
  assertKept,
} from '../packages/server/src/control/testing/simulation/invariants.ts';
import { Ledger } from '../packages/server/src/control/testing/simulation/ledger.ts';
import { STEPS } from '../packages/server/src/runner/vm/steps.ts';
import { Api } from './fixtures/api/api.ts';
import { Holds, type HeldStep } from './fixtures/faults/holds.ts';
import { assertConsistent, findSandboxOf } from './fixtures/host/inventory.ts';
import { startPrepared } from './fixtures/service/prepared-service.ts';
import type { Service } from './fixtures/service/service.ts';
import { SoakWorker, type Tally } from './fixtures/soak/soak-worker.ts';
import { SoakedService } from './fixtures/soak/soaked-service.ts';
import { SeededChoice } from '../packages/server/src/control/testing/seeded-choice.ts';
import { kill, VICTIMS } from './fixtures/faults/victims.ts';

const ROUND_MS = 45_000;
const WORKERS = 3;
const SETTLE_MS = 90_000;
const LONGEST_LULL_MS = 4_000;
const REACH_MS = 6_000;
const STEP_NAMES = [...Object.keys(STEPS), ...Object.keys(RECORD_STEPS)] as HeldStep[];

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '5' }, seed: { type: 'string', default: '1' } },
});
const seed = Number(values.seed);
const endAt = performance.now() + Number(values.minutes) * 60_000;
const choice = new SeededChoice(seed);

function say(text: string): void {
  process.stdout.write(`${new Date().toISOString()} ${text}\n`);
}

interface Soak {
  service: Service;
  api: Api;
  holds: Holds;
  ledger: Ledger;
  workers: SoakWorker[];
}

/** Kills a process, half of the time exactly at a step. */
async function strike({ service, holds, ledger }: Soak): Promise<string> {
  const victim = choice.of(VICTIMS);
  const step = choice.below(2) === 0 ? undefined : choice.of(STEP_NAMES);
  using hold = step === undefined ? undefined : holds.hold(step);
  const isReached = await hold?.reached(REACH_MS).then(
    () => true,
    () => false,
  );
  // Otherwise the hold would stop the restarted process, which `kill` waits for.
  if (isReached !== true) hold?.release();
  if (victim === 'qemu') killOneVm(service, ledger);
  else await kill(victim, service);
  hold?.release();
  return `${victim}${isReached === true ? ` at ${step}` : ''}`;
}

/** Kills one VM, not all: the other sandboxes must notice nothing. */
function killOneVm(service: Service, ledger: Ledger): void {
  const pids = service.vmPids();
  if (pids.length === 0) return;
  const pid = choice.of(pids);
  const id = findSandboxOf(service, pid);
  for (const killed of id === undefined ? ledger.alive : [id]) ledger.noteVmKilled(killed);
  process.kill(pid, 'SIGKILL');
}

async function runRound(soak: Soak): Promise<void> {
  const roundEnd = Math.min(performance.now() + ROUND_MS, endAt);
  let failed: unknown;
  const isOver = (): boolean => failed !== undefined || performance.now() >= roundEnd;
  const working = Promise.all(soak.workers.map((worker) => worker.work(isOver))).catch((error: unknown) => {
    failed = error;
  });
  const deaths: string[] = [];
  while (!isOver()) {
    await choice.pause(LONGEST_LULL_MS);
    deaths.push(await strike(soak));
  }
  await working;
  if (failed !== undefined) throw failed;
  say(`killed: ${deaths.join(', ')}`);
}

async function rest({ api, ledger, workers }: Soak): Promise<void> {
  const { service } = api;
  await service.waitFor('/healthz', SETTLE_MS, async () => (await service.health()) === 200);
  await assertInvariants(new SoakedService(api), ledger);
  for (const worker of workers) await worker.checkOwn();
  say(`all in order: ${ledger.alive.length} sandboxes alive, ${ledger.ended.size} have ended`);
}

/** Removes sandboxes and snapshots that no caller knows of. Otherwise they would fill the host. */
async function removeUnowned({ api, ledger, workers }: Soak): Promise<void> {
  const owned = new Set(workers.flatMap(({ own }) => own));
  for (const id of ledger.alive) if (!owned.has(id)) await workers[0]?.destroy(id);
  const { body } = await api.call('GET', '/v1/snapshots?limit=500');
  for (const { id } of body as unknown as SnapshotRecord[])
    if (!ledger.snapshots.has(id)) await api.call('DELETE', `/v1/snapshots/${id}`);
}

async function removeAll({ workers, ledger }: Soak): Promise<void> {
  const [worker] = workers;
  for (const id of ledger.alive) await worker?.destroy(id);
  await worker?.deleteSnapshots();
}

async function soak(): Promise<void> {
  using holds = new Holds();
  await using service = await startPrepared({ instance: 9, env: { COPPICE_FAULT_DIR: holds.directory } });
  const api = new Api(service);
  const ledger = new Ledger();
  const tally: Tally = { requests: 0, refused: 0 };
  const workers = Array.from({ length: WORKERS }, () => new SoakWorker({ api, ledger, choice, tally }));
  const parts: Soak = { service, api, holds, ledger, workers };
  try {
    while (performance.now() < endAt) {
      await runRound(parts);
      await rest(parts);
      await removeUnowned(parts);
    }
    await removeAll(parts);
    await rest(parts);
    await assertKept(new SoakedService(api), ledger);
    const { units, captures } = await assertConsistent(api, SETTLE_MS);
    const left = [...ledger.alive, ...units, ...captures];
    if (left.length > 0) throw new Error(`left over at the end: ${JSON.stringify(left)}`);
  } finally {
    holds.releaseAll();
  }
  say(`${tally.requests} requests, ${tally.refused} of them temporarily refused; nothing lost, nothing left`);
}

say(`seed ${seed}`);
try {
  await soak();
} catch (error) {
  say(`failed with seed ${seed}: ${error instanceof Error ? error.stack : String(error)}`);
  process.exitCode = 1;
}
