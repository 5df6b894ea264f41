/**
 * Measures 100 creates at once: how many succeed, how many are answered 429, their rate, and the latency of other
 * requests meanwhile. The rate is compared with that of bare QEMU restores of the same template, a few at a time.
 */
import { availableParallelism } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { IMAGE, startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { FloorVm, floorInputs, type FloorInputs } from './fixtures/floor-vm.ts';
import { summarize, timeMs } from './fixtures/measure.ts';
import { report, type Figure } from './fixtures/report.ts';

const CROWD = 100;
const ROUNDS = 3;
const FLOOR_COUNT = 32;
const GET_INTERVAL_MS = 20;

interface Rush {
  running: number;
  refused: number;
  failed: number;
  perSecond: number;
  createsMs: number[];
  getsMs: number[];
}

async function rush({ api }: BenchService): Promise<Rush> {
  const ids: string[] = [];
  const createsMs: number[] = [];
  const statuses: number[] = [];
  const getsMs: number[] = [];
  const over = new AbortController();
  const watch = async (): Promise<void> => {
    while (!over.signal.aborted) {
      getsMs.push(await timeMs(() => api.call('GET', '/v1/runs?limit=1')));
      await delay(GET_INTERVAL_MS);
    }
  };
  const createOne = async (): Promise<void> => {
    const started = performance.now();
    const { status, body } = await api.call('POST', '/v1/runs', { body: { image: IMAGE, mem_mib: 512 } });
    statuses.push(status);
    if (status !== 201) return;
    createsMs.push(performance.now() - started);
    ids.push(String(body['id']));
  };
  const watching = watch();
  const elapsedMs = await timeMs(() => Promise.all(Array.from({ length: CROWD }, createOne)));
  over.abort();
  await watching;
  await Promise.all(ids.map((id) => api.destroy(id)));
  const count = (wanted: number): number => statuses.filter((status) => status === wanted).length;
  const [running, refused] = [count(201), count(429)];
  const failed = CROWD - running - refused;
  return { running, refused, failed, perSecond: (running * 1000) / elapsedMs, createsMs, getsMs };
}

async function restoreRate(inputs: FloorInputs): Promise<number> {
  const atOnce = availableParallelism();
  const vms: FloorVm[] = [];
  const elapsedMs = await timeMs(async () => {
    for (let at = 0; at < FLOOR_COUNT; at += atOnce) {
      const restored = await Promise.all(
        Array.from({ length: atOnce }, (_, index) => FloorVm.restore(inputs, `cf-tap${at + index}`)),
      );
      vms.push(...restored.map(({ vm }) => vm));
    }
  });
  await Promise.all(vms.map((vm) => vm.end()));
  return (FLOOR_COUNT * 1000) / elapsedMs;
}

export async function benchCrowd(bench: BenchService): Promise<Figure[]> {
  const { id } = await bench.api.create({ image: IMAGE, mem_mib: 512 });
  const inputs = floorInputs(bench.service, id);
  const rushes: Rush[] = [];
  const floor: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    rushes.push(await rush(bench));
    floor.push(await restoreRate(inputs));
  }
  await bench.api.destroy(id);
  const ours = summarize(
    `creates, ${CROWD} requested at once`,
    '/s',
    rushes.map((each) => each.perSecond),
  );
  const bare = summarize('bare QEMU restores, one a core at once', '/s', floor);
  const outcomes = rushes.map(
    ({ running, refused, failed }) => `${running} run, ${refused} got 429, ${failed} failed otherwise`,
  );
  return [
    {
      name: `rate of ${CROWD} creates at once`,
      against: 'rate of bare QEMU restores',
      goal: '–',
      ratio: ours.median / bare.median,
      samples: [
        ours,
        bare,
        summarize(
          `a create among ${CROWD}`,
          'ms',
          rushes.flatMap((each) => each.createsMs),
        ),
        summarize(
          'GET /v1/runs meanwhile',
          'ms',
          rushes.flatMap((each) => each.getsMs),
        ),
      ],
      note: outcomes.join('; '),
    },
  ];
}

if (import.meta.main) {
  await using bench = await startBenchService(0);
  report('crowd', bench.accelerator, await benchCrowd(bench));
}
