/**
 * Measures how the costs of a control grow with its runners and sandboxes. The runners are simulated: they speak the real protocol,
 * and their VMs are entries in a map. Controls and PostgreSQL are real processes; the runners and the clients share one.
 *
 * Options: `--runners=1,10,100,1000`, `--per-runner=100` sandboxes, `--rate=200` creates a second for `--seconds=60`,
 * `--statements` to list those that take most time of PostgreSQL, and `--quick`, which only tests the benchmark.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import {
  addOrganizations,
  addSandboxes,
} from '../../packages/server/src/control/testing/scale/many-running.ts';
import { interleave, summarize, timeMs, type Sample } from '../fixtures/measure.ts';
import { readResidentMiB } from '../fixtures/process-usage.ts';
import { report, type Figure } from '../fixtures/report.ts';
import { send, sendAtRate, type Answer, type Call } from '../fixtures/scale/scale-client.ts';
import { ScaleInstallation, type ScaleControl } from '../fixtures/scale/scale-installation.ts';
import { measureCost, measureIdle, shareOf, type Cost } from '../fixtures/scale/scale-meter.ts';

const { values: options } = parseArgs({
  options: {
    runners: { type: 'string', default: '1,10,100,1000' },
    'per-runner': { type: 'string', default: '100' },
    rate: { type: 'string', default: '200' },
    seconds: { type: 'string', default: '60' },
    statements: { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
  },
});
const TIERS = options.quick ? [1, 3] : options.runners.split(',').map(Number);
const PER_RUNNER = Number(options['per-runner']);
const RATE = options.quick ? 10 : Number(options.rate);
const SECONDS = options.quick ? 2 : Number(options.seconds);
const ORGANIZATIONS = 100;
const ROUNDS = options.quick ? 5 : 30;
const OPERATIONS = options.quick ? 5 : 50;
/** More than two rounds of reconciliation. */
const SETTLE_MS = options.quick ? 1_000 : 15_000;
const IDLE_MS = options.quick ? 2_000 : 20_000;
const TOLD_POLL_MS = 3_000;
/** In the statement that control sends for each sandbox whose policy it sends again. */
const READ_GRANTS = 'from "sandbox_credentials" left join';
const MAX_OPEN = 400;
const MAX_ATTEMPTS = 5;
const RETRY_MS = 200;
const SHOWN_STATEMENTS = 15;
const BODY = { image: 'node:22-slim', mem_mib: 512, timeout: 86_400 };
const CREATE = { method: 'POST', path: '/v1/runs', body: BODY } as const;
const FLOOR = 'a row, committed by itself';
const NOTHING = 'a request for nothing (the key, and 404)';

interface Stage {
  installation: ScaleInstallation;
  control: ScaleControl;
  keys: readonly string[];
  /** Added to SQL and rosters so far. */
  sandboxes: number;
}

const one = (name: string, unit: string, value: number): Sample => summarize(name, unit, [value]);

function keyOf({ keys }: Stage, index: number): string {
  return keys[index % keys.length] ?? '';
}

/** Sends a request as one of the organizations. Throws unless it succeeds. */
async function call(stage: Stage, index: number, asked: Omit<Call, 'key'>): Promise<Answer> {
  const call = { ...asked, key: keyOf(stage, index) };
  let answer = await send(stage.control.process.address, call);
  // Its latency includes the attempts that a busy machine refuses.
  for (let attempt = 1; answer.status === 503 && attempt < MAX_ATTEMPTS; attempt += 1) {
    await delay(RETRY_MS);
    answer = await send(stage.control.process.address, call);
  }
  if (answer.status >= 300)
    throw new Error(`${asked.method} ${asked.path} answered ${answer.status}: ${answer.body}`);
  return answer;
}

const idOf = ({ body }: Answer): string => (JSON.parse(body) as { id: string }).id;

/** Costs for each of some operations, one after the other, without those of the time. */
async function measureOperations(stage: Stage, idle: Cost): Promise<Sample[]> {
  const { control, installation } = stage;
  const indexes = Array.from({ length: OPERATIONS }, (_, index) => index);
  const ids: string[] = [];
  const exec = { command: 'true' };
  const operations: [name: string, work: (index: number) => Promise<unknown>][] = [
    ['create', async (index) => ids.push(idOf(await call(stage, index, CREATE)))],
    ['get', (index) => call(stage, index, { method: 'GET', path: `/v1/runs/${ids[index]}` })],
    ['list of 100', (index) => call(stage, index, { method: 'GET', path: '/v1/runs?limit=100' })],
    [
      'exec',
      (index) => call(stage, index, { method: 'POST', path: `/v1/runs/${ids[index]}/exec`, body: exec }),
    ],
    ['destroy', (index) => call(stage, index, { method: 'DELETE', path: `/v1/runs/${ids[index]}` })],
  ];
  const samples: Sample[] = [];
  for (const [name, work] of operations) {
    const cost = await measureCost(control, installation.database, async () => {
      for (const index of indexes) await work(index);
    });
    const each = shareOf(cost, idle, OPERATIONS);
    samples.push(
      one(`${name}: statements`, 'number', each.statements),
      one(`${name}: CPU of control`, 'ms', each.controlMs),
      one(`${name}: CPU of PostgreSQL`, 'ms', each.postgresMs),
    );
  }
  return samples;
}

async function measureLatency(stage: Stage, title: string): Promise<Figure[]> {
  const { address } = stage.control.process;
  let index = 0;
  const create = (): Promise<number> => timeMs(() => call(stage, (index += 1), CREATE));
  const values = await interleave(
    [
      { name: `create, ${title}`, run: create },
      { name: FLOOR, run: () => timeMs(() => stage.installation.database.insertFloor()) },
      {
        name: NOTHING,
        run: () => timeMs(() => send(address, { method: 'GET', path: '/v1/nothing', key: keyOf(stage, 0) })),
      },
    ],
    ROUNDS,
  );
  const [ours, ...floors] = [...values].map(([name, list]) => summarize(name, 'ms', list));
  if (ours === undefined) throw new Error('nothing was measured');
  return floors.map((floor, at) => ({
    name: ours.name,
    against: floor.name,
    ratio: ours.median / floor.median,
    goal: '–',
    samples: at === 0 ? [ours, floor] : [floor],
  }));
}

async function measureRate(stage: Stage, idle: Cost, title: string): Promise<Figure> {
  const { installation, control } = stage;
  const { address } = control.process;
  await installation.database.forgetStatements();
  const plan = { perSecond: RATE, seconds: SECONDS, maxOpen: MAX_OPEN };
  let outcome: Awaited<ReturnType<typeof sendAtRate>> | undefined;
  const cost = await measureCost(control, installation.database, async () => {
    outcome = await sendAtRate(plan, (index) => send(address, { ...CREATE, key: keyOf(stage, index) }));
  });
  if (outcome === undefined) throw new Error('nothing was sent');
  await showStatements(installation, `creates, ${title}`);
  const made = outcome.statuses.get(201) ?? 0;
  const each = shareOf(cost, idle, made);
  const statuses = [...outcome.statuses].map(([status, count]) => `${count} × ${status || 'no answer'}`);
  return {
    name: `creates at ${RATE}/s for ${SECONDS} s, ${title}`,
    against: '–',
    ratio: undefined,
    goal: '–',
    samples: [
      one('creates', '/s', (made * 1000) / outcome.elapsedMs),
      summarize('a create at that rate', 'ms', outcome.latenciesMs),
      one('CPU of control for each', 'ms', each.controlMs),
      one('CPU of PostgreSQL for each', 'ms', each.postgresMs),
      one('statements for each', 'number', each.statements),
      one('rows for each', 'number', each.rows),
      one('time of PostgreSQL for each', 'ms', each.busyMs),
      one('control of a core', '%', (cost.controlMs * 100) / cost.elapsedMs),
      one('PostgreSQL of a core', '%', (cost.postgresMs * 100) / cost.elapsedMs),
      one('memory of control then', 'MiB', readResidentMiB(control.process.pid)),
    ],
    note: `answers: ${statuses.join(', ')}. ${describeWarnings(control)}`,
  };
}

function describeWarnings({ warnings }: ScaleControl): string {
  const list = [...warnings].map(([message, count]) => `${count} × "${message}"`);
  return list.length === 0 ? 'Control warned of nothing.' : `Control warned: ${list.join(', ')}.`;
}

async function showStatements({ database }: ScaleInstallation, title: string): Promise<void> {
  if (!options.statements) return;
  process.stdout.write(`\n${title}\n`);
  for (const { calls, rows, ms, query } of await database.listStatements(SHOWN_STATEMENTS))
    process.stdout.write(`${Math.round(ms)} ms, ${calls} calls, ${rows} rows: ${query.slice(0, 160)}\n`);
}

/** Resolves when control has sent all policies to the runners again, which it does after each start, behind requests. */
async function untilTold({ installation: { database } }: Stage): Promise<void> {
  for (let before = -1; ;) {
    const told = await database.countCalls(READ_GRANTS);
    if (told === before) return;
    before = told;
    await delay(TOLD_POLL_MS);
  }
}

/** Starts the control of a tier with all that it will have, and measures what it costs without any request. */
async function measureStart(stage: Stage, runners: number): Promise<{ figure: Figure; idle: Cost }> {
  const { installation } = stage;
  await installation.joinUpTo(runners);
  await installation.untilConnected(stage.control);
  await stage.control.process.kill();
  const to = runners * PER_RUNNER;
  const added = installation.runners.slice(Math.floor(stage.sandboxes / PER_RUNNER));
  await addSandboxes(installation.db, added, { from: stage.sandboxes, to });
  stage.sandboxes = to;
  await installation.database.forgetStatements();
  const startedAt = performance.now();
  stage.control = await installation.startControl('first');
  const connectedAt = await installation.untilConnected(stage.control);
  await untilTold(stage);
  const toldAt = performance.now();
  await delay(SETTLE_MS);
  await showStatements(installation, `start with ${runners} runners and ${to} sandboxes`);
  await installation.database.forgetStatements();
  const idle = await measureIdle(stage.control, installation.database, IDLE_MS);
  await showStatements(installation, `${runners} runners and ${to} sandboxes, without requests`);
  const each = (value: number): number => value / (idle.elapsedMs / 1000) / runners;
  const samples = [
    one('start: until it serves', 'ms', stage.control.serveMs),
    one('start: until all runners are connected', 'ms', connectedAt - startedAt),
    one('start: until policies have been sent again', 'ms', toldAt - startedAt),
    one('memory of control', 'MiB', readResidentMiB(stage.control.process.pid)),
    one('CPU of control, each runner and second', 'ms', each(idle.controlMs)),
    one('CPU of PostgreSQL, each runner and second', 'ms', each(idle.postgresMs)),
    one('statements, each runner and second', 'number', each(idle.statements)),
    one('rows, each runner and second', 'number', each(idle.rows)),
  ];
  const name = `${runners} runners and ${to} sandboxes at rest`;
  return { figure: { name, against: '–', ratio: undefined, goal: '–', samples }, idle };
}

/** Kills the control that has all runners, and measures how long another one takes to have them. */
async function measureTakeover(stage: Stage): Promise<Figure> {
  const { installation, control } = stage;
  const other = await installation.startControl('second');
  await delay(SETTLE_MS);
  await installation.database.forgetStatements();
  const killedAt = performance.now();
  await control.process.kill();
  const connectedAt = await installation.untilConnected(other);
  await showStatements(installation, 'takeover');
  stage.control = other;
  const takenAt = other.firstTakenAt ?? NaN;
  return {
    name: `takeover of ${installation.runners.length} runners and ${stage.sandboxes} sandboxes`,
    against: '–',
    ratio: undefined,
    goal: '–',
    samples: [
      one('from the kill to the first runner: the lease', 'ms', takenAt - killedAt),
      one('from the first runner to the last one connected', 'ms', connectedAt - takenAt),
    ],
    note: describeWarnings(other),
  };
}

async function measureTier(stage: Stage, runners: number): Promise<Figure[]> {
  const { figure, idle } = await measureStart(stage, runners);
  const title = `${runners} runners, ${stage.sandboxes} sandboxes`;
  process.stderr.write(`${title}\n`);
  show([figure]);
  const latency = show(await measureLatency(stage, title));
  const samples = await measureOperations(stage, idle);
  const operations = { name: `operations, ${title}`, against: '–', ratio: undefined, goal: '–', samples };
  const rate = await measureRate(stage, idle, title);
  return [figure, ...latency, ...show([operations, rate])];
}

/** A run takes long: each part is shown when it has been measured. */
function show(figures: readonly Figure[]): readonly Figure[] {
  for (const { name, samples, note = '' } of figures) {
    process.stdout.write(`\n${name}. ${note}\n`);
    for (const sample of samples)
      process.stdout.write(
        `  ${sample.name}: ${sample.median.toFixed(2)} ${sample.unit}, p95 ${sample.p95.toFixed(2)}\n`,
      );
  }
  return figures;
}

export async function benchScale(): Promise<Figure[]> {
  await using installation = await ScaleInstallation.start();
  const control = await installation.startControl('first');
  const keys = await addOrganizations(installation.db, ORGANIZATIONS);
  await delay(SETTLE_MS);
  const memory = one('memory of control', 'MiB', readResidentMiB(control.process.pid));
  const figures: Figure[] = [
    { name: 'no runner', against: '–', ratio: undefined, goal: '–', samples: [memory] },
  ];
  const stage: Stage = { installation, control, keys, sandboxes: 0 };
  for (const runners of TIERS) figures.push(...(await measureTier(stage, runners)));
  figures.push(...show([await measureTakeover(stage)]));
  return figures;
}

if (import.meta.main)
  report(`scale${options.quick ? '-quick' : ''}`, 'no virtual machine', await benchScale());
