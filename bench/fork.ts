/**
 * Measures forks: the pause of the parent, the time until all children have answered, and the memory of an idle child.
 * Each is compared with a floor of the same run (fixtures/fork-floor.ts). `--quick` only tests the benchmark itself.
 *
 * Other operations on saved memory are measured in hibernate.ts, a create from the warm pool in create.ts.
 */
import { availableParallelism } from 'node:os';
import type { BenchService } from './fixtures/bench-service.ts';
import { FloorDisk, floorOf, restoreFloor } from './fixtures/fork-floor.ts';
import { measureIdle } from './fixtures/fork-memory.ts';
import type { Captured } from './fixtures/fork-log.ts';
import { ForkParent } from './fixtures/fork-parent.ts';
import { PLAN } from './fixtures/fork-plan.ts';
import { startForkService } from './fixtures/fork-service.ts';
import { interleave, summarize, timeMs, type Sample } from './fixtures/measure.ts';
import { writePlot, type PlotLine } from './fixtures/plot.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const MIB = 1024 ** 2;
const PARENT_MIB = 1024;
const CHILD_MIB = 256;
/** Written by guests of every size. */
const SAME_MIB = 64;
/** Allowed in addition to the time for writing. */
const FIXED_MS = 10;
const WRITE_FACTOR = 1.5;
/** On a machine with few cores, a hundred execs at once would run into their time limits. */
const ASKED_AT_ONCE = 8;

interface Subject {
  parent: ForkParent;
  label: string;
  pauses: Captured[];
  changedMiB: number[];
}

async function makeSubject(bench: BenchService, memMiB: number, writtenMiB: number): Promise<Subject> {
  const parent = await ForkParent.create(bench, memMiB, writtenMiB);
  return { parent, label: `${writtenMiB} MiB written, RAM of ${memMiB}`, pauses: [], changedMiB: [] };
}

async function pause(subject: Subject, disk: FloorDisk): Promise<number> {
  disk.settle();
  subject.changedMiB.push(subject.parent.changedBytes / MIB);
  const taken = await subject.parent.pause();
  subject.pauses.push(taken);
  return taken.pause_ms;
}

/** Describes the median of each step, without the first pause, which only warms up. */
function describeSteps({ pauses, changedMiB }: Subject): string {
  const counted = pauses.slice(1);
  const steps = Object.keys(counted[0]?.timings_ms ?? {}).map((step) => {
    const values = counted.map(({ timings_ms: steps }) => steps[step] ?? 0);
    return `${step} ${summarize(step, 'ms', values).median.toFixed(1)}`;
  });
  const changed = summarize('changed', 'MiB', changedMiB.slice(1)).median;
  return `${changed.toFixed(0)} MiB of the guest's memory had changed in all; steps in ms: ${steps.join(', ')}`;
}

const endAll = (subjects: readonly Subject[]): Promise<unknown> =>
  Promise.all(subjects.map(({ parent }) => parent.end()));

/**
 * Measures the pause by freshly written memory. Pages that the guest changes by itself count too, also in the floor.
 */
export async function benchForkPause(bench: BenchService): Promise<Figure[]> {
  using disk = new FloorDisk(bench);
  const subjects: Subject[] = [];
  for (const writtenMiB of PLAN.writtenMiB) subjects.push(await makeSubject(bench, PARENT_MIB, writtenMiB));
  const write = ({ parent }: Subject, again: boolean): number => disk.write(parent.changedBytes, { again });
  const values = await interleave(
    subjects.flatMap((subject) => [
      { name: `pause, ${subject.label}`, run: () => pause(subject, disk) },
      { name: `write(2) of as much, ${subject.label}`, run: async () => write(subject, false) },
      { name: `written again, ${subject.label}`, run: async () => write(subject, true) },
    ]),
    PLAN.rounds,
  );
  await endAll(subjects);
  const series = [...values];
  const figures = subjects.map((subject, index) => {
    const figure = compare({
      name: `parent's pause, ${subject.label}`,
      against: 'write(2) of as many bytes',
      goal: '',
      unit: 'ms',
      values: new Map(series.slice(index * 3, index * 3 + 2)),
    });
    const allowedMs = FIXED_MS + WRITE_FACTOR * figure.floor.median;
    const goal = `≤ ${FIXED_MS} ms + ${WRITE_FACTOR}×: ${figure.ours.median.toFixed(0)} ≤ ${allowedMs.toFixed(0)} ms`;
    const [name = '', list = []] = series[index * 3 + 2] ?? [];
    const again = summarize(name, 'ms', list);
    const samples = [...figure.samples, again];
    return { ...figure, goal, samples, again, note: describeSteps(subject) };
  });
  plotPauses(subjects, figures);
  return figures;
}

type PauseParts = Record<'ours' | 'floor' | 'again', Sample>;

function plotPauses(subjects: readonly Subject[], figures: readonly PauseParts[]): void {
  const line = (name: string, part: keyof PauseParts): PlotLine => ({
    name,
    isFloor: part !== 'ours',
    points: subjects.map(({ changedMiB }, index) => ({
      x: summarize('changed', 'MiB', changedMiB).median,
      ...(figures[index]?.[part] ?? summarize(name, 'ms', [])),
    })),
  });
  writePlot(`fork-pause${PLAN.suffix}`, {
    title: 'How long a fork stops the parent',
    xLabel: `changed memory of a guest of ${PARENT_MIB} MiB, MiB`,
    yLabel: 'ms (median, min to max)',
    scale: 'linear',
    lines: [
      line('pause, freeze to thaw', 'ours'),
      line('write(2) of as many bytes', 'floor'),
      line('the same, file in cache', 'again'),
    ],
  });
}

/** Measures the pause by the size of the guest. All guests have written the same amount. */
export async function benchForkRam(bench: BenchService): Promise<Figure[]> {
  using disk = new FloorDisk(bench);
  const subjects: Subject[] = [];
  for (const memMiB of PLAN.ramMiB) subjects.push(await makeSubject(bench, memMiB, SAME_MIB));
  const contenders = subjects.map((subject) => ({
    name: `pause, ${subject.label}`,
    run: () => pause(subject, disk),
  }));
  const values = await interleave(contenders, PLAN.rounds);
  await endAll(subjects);
  const samples = [...values].map(([name, list]) => summarize(name, 'ms', list));
  const [small, large] = [samples[0], samples.at(-1)];
  return [
    {
      name: `parent's pause, RAM of ${PLAN.ramMiB.at(-1)} MiB`,
      against: `RAM of ${PLAN.ramMiB[0]} MiB, ${SAME_MIB} MiB written in both`,
      ratio: (large?.median ?? NaN) / (small?.median ?? NaN),
      goal: 'flat',
      samples,
      note: subjects.map((subject) => `${subject.label}: ${describeSteps(subject)}`).join('; '),
    },
  ];
}

/** Returns the milliseconds from the call until every child has answered an exec. */
async function forkToAnswers({ api }: BenchService, parent: ForkParent, count: number): Promise<number> {
  let children: string[] = [];
  const elapsedMs = await timeMs(async () => {
    children = await parent.fork(count);
    const left = children.values();
    const ask = async (): Promise<void> => {
      for (const id of left) await api.exec(id, 'true');
    };
    await Promise.all(Array.from({ length: ASKED_AT_ONCE }, ask));
  });
  await parent.endAll(children);
  return elapsedMs;
}

export async function benchForkChildren(bench: BenchService): Promise<Figure[]> {
  using disk = new FloorDisk(bench);
  const parent = await ForkParent.create(bench, CHILD_MIB, 0);
  const inputs = floorOf(bench, parent);
  await forkToAnswers(bench, parent, 1);
  const figures = [];
  for (const { count, rounds } of PLAN.forks) {
    const ours: number[] = [];
    const copies: number[] = [];
    const restores: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      disk.settle();
      ours.push(await forkToAnswers(bench, parent, count));
      copies.push(await disk.copy(parent.directory.ram));
      restores.push(await restoreFloor(inputs));
    }
    const together = Math.min(count, availableParallelism());
    const floor = copies.map((copyMs, round) => copyMs + (count * (restores[round] ?? NaN)) / together);
    const figure = compare({
      name: `fork into ${count}, until all have answered`,
      against: 'copy of the base + n × bare QEMU restore ÷ min(n, cores)',
      goal: '≤ 1.3',
      unit: 'ms',
      values: new Map([
        [`fork into ${count} and an exec in each`, ours],
        [`copy + ${count} × restore ÷ ${together}`, floor],
      ]),
    });
    const parts = [
      summarize('copy of the base', 'ms', copies),
      summarize('bare QEMU restore', 'ms', restores),
    ];
    figures.push({ ...figure, samples: [...figure.samples, ...parts] });
  }
  await parent.end();
  plotChildren(figures);
  return figures;
}

function plotChildren(figures: readonly { ours: Sample; floor: Sample }[]): void {
  const line = (name: string, part: 'ours' | 'floor'): PlotLine => ({
    name,
    isFloor: part === 'floor',
    points: PLAN.forks.map(({ count }, index) => ({
      x: count,
      ...(figures[index]?.[part] ?? summarize(name, 'ms', [])),
    })),
  });
  writePlot(`fork-children${PLAN.suffix}`, {
    title: 'From a fork to an answer of every child',
    xLabel: `children, ${CHILD_MIB} MiB each`,
    yLabel: 'ms (median, min to max)',
    scale: 'log',
    lines: [line('fork and an exec in each', 'ours'), line('copy + n × restore ÷ min(n, cores)', 'floor')],
  });
}

export async function benchForkMemory(bench: BenchService): Promise<Figure[]> {
  const parent = await ForkParent.create(bench, CHILD_MIB, 0);
  const values = await measureIdle(bench, parent, PLAN.idle);
  await parent.end();
  const name = `memory for each of ${PLAN.idle.count} idle children`;
  return [compare({ name, against: 'bare QEMU restores', goal: '≤ 1.1', unit: 'MiB', values })];
}

if (import.meta.main) {
  await using bench = await startForkService();
  const figures: Figure[] = [];
  for (const measure of [benchForkPause, benchForkRam, benchForkChildren, benchForkMemory]) {
    process.stderr.write(`${measure.name} …\n`);
    figures.push(...(await measure(bench)));
  }
  report(`fork${PLAN.suffix}`, bench.accelerator, figures);
}
