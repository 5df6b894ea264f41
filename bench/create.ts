/** Measures creates with a warm template, 1 and 8 at once, against bare QEMU restoring the same template. */
import { availableParallelism } from 'node:os';
import { IMAGE, startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { FloorVm, floorInputs, type FloorInputs } from './fixtures/floor-vm.ts';
import { interleave, timeMs } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const ROUNDS = 12;
const AT_ONCE = 8;
const FLOOR = 'bare QEMU restoring the same template';

async function createMany({ api }: BenchService, count: number): Promise<number> {
  const ids: string[] = [];
  const elapsedMs = await timeMs(async () => {
    const created = await Promise.all(Array.from({ length: count }, () => api.create({ image: IMAGE })));
    ids.push(...created.map((sandbox) => sandbox.id));
  });
  await Promise.all(ids.map((id) => api.destroy(id)));
  return elapsedMs;
}

async function floorMany(inputs: FloorInputs, count: number): Promise<number> {
  const vms: FloorVm[] = [];
  const elapsedMs = await timeMs(async () => {
    const restored = await Promise.all(
      Array.from({ length: count }, (_, index) => FloorVm.restore(inputs, `cf-tap${index}`)),
    );
    vms.push(...restored.map(({ vm }) => vm));
  });
  await Promise.all(vms.map((vm) => vm.end()));
  return elapsedMs;
}

export async function benchCreate(bench: BenchService): Promise<Figure[]> {
  const { id } = await bench.api.create({ image: IMAGE });
  const inputs = floorInputs(bench.service, id);
  const figures: Figure[] = [];
  for (const count of [1, AT_ONCE]) {
    const values = await interleave(
      [
        { name: `create ×${count}`, run: () => createMany(bench, count) },
        { name: `bare QEMU restore ×${count}`, run: () => floorMany(inputs, count) },
      ],
      ROUNDS,
    );
    const name = `create, template warm, ${count} at once`;
    figures.push(compare({ name, against: FLOOR, goal: '≤ 1.15', unit: 'ms', values }));
  }
  const record = await bench.api.create({ image: IMAGE });
  const first = figures[0];
  if (first !== undefined)
    first.note = `${availableParallelism()} cores; steps of one create in ms: ${stepsOf(bench, record.id)}`;
  await bench.api.destroy(record.id);
  await bench.api.destroy(id);
  return figures;
}

function stepsOf({ service }: BenchService, id: string): string {
  const line = service.output
    .split('\n')
    .findLast((text) => text.includes(id) && text.includes('timings_ms'));
  if (line === undefined) return 'not in the log';
  const { timings_ms: steps } = JSON.parse(line) as { timings_ms: Record<string, number> };
  return Object.entries(steps)
    .map(([step, ms]) => `${step} ${ms}`)
    .join(', ');
}

/** Measures one create from the warm pool, which only gives a pooled VM its identity, against the same floor. */
export async function benchWarmCreate(bench: BenchService): Promise<Figure[]> {
  const { id } = await bench.api.create({ image: IMAGE });
  const inputs = floorInputs(bench.service, id);
  const fromPool = async (): Promise<number> => {
    await bench.nextWarm();
    return createMany(bench, 1);
  };
  const contenders = [
    { name: 'create from the warm pool', run: fromPool },
    { name: 'bare QEMU restore', run: () => floorMany(inputs, 1) },
  ];
  const values = await interleave(contenders, ROUNDS);
  await bench.api.destroy(id);
  return [compare({ name: 'create from the warm pool', against: FLOOR, goal: '≤ 0.15', unit: 'ms', values })];
}

if (import.meta.main) {
  const figures: Figure[] = [];
  let accelerator = '';
  for (const [warmPool, measure] of [
    [0, benchCreate],
    [2, benchWarmCreate],
  ] as const) {
    await using bench = await startBenchService(warmPool);
    figures.push(...(await measure(bench)));
    accelerator = bench.accelerator;
  }
  report('create', accelerator, figures);
}
