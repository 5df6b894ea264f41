/** Measures the memory of each of 30 idle sandboxes, against as many bare QEMU restores of the same template. */
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { IMAGE, startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { FloorVm, floorInputs, type FloorInputs } from './fixtures/floor-vm.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const COUNT = 30;
const AT_ONCE = 5;
const ROUNDS = 3;
const SETTLE_MS = 3000;

/** Returns MemAvailable of the host, which drops by private pages and page tables, but not by shared cache. */
function availableMiB(): number {
  return Number(/MemAvailable:\s+(\d+)/u.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]) / 1024;
}

async function inBatches<T>(make: (index: number) => Promise<T>): Promise<T[]> {
  const made: T[] = [];
  for (let at = 0; at < COUNT; at += AT_ONCE) {
    made.push(...(await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => make(at + index)))));
  }
  return made;
}

async function measure<T>(
  make: (index: number) => Promise<T>,
  end: (made: T) => Promise<unknown>,
): Promise<number> {
  await delay(SETTLE_MS);
  const before = availableMiB();
  const made = await inBatches(make);
  await delay(SETTLE_MS);
  const used = before - availableMiB();
  await Promise.all(made.map((each) => end(each)));
  return used / COUNT;
}

export async function benchMemory(bench: BenchService): Promise<Figure[]> {
  const { api } = bench;
  const { id } = await api.create({ image: IMAGE });
  const inputs: FloorInputs = floorInputs(bench.service, id);
  const ours: number[] = [];
  const floor: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    ours.push(
      await measure(
        () => api.create({ image: IMAGE }),
        (sandbox) => api.destroy(sandbox.id),
      ),
    );
    floor.push(
      await measure(
        (index) => FloorVm.restore(inputs, `cf-tap${index}`),
        ({ vm }) => vm.end(),
      ),
    );
  }
  await api.destroy(id);
  const values = new Map([
    [`memory of an idle sandbox, ${COUNT} at once`, ours],
    [`memory of a bare restored QEMU, ${COUNT} at once`, floor],
  ]);
  const name = `memory for each of ${COUNT} idle sandboxes`;
  return [compare({ name, against: 'bare QEMU restores', goal: '≤ 1.1', unit: 'MiB', values })];
}

if (import.meta.main) {
  await using bench = await startBenchService(0);
  report('memory', bench.accelerator, await benchMemory(bench));
}
