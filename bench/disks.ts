/**
 * Measures persistent disks from inside sandboxes and through the API: throughput and flushes against a raw file in the same
 * QEMU, stalls while overlays change, snapshots and forks by size, what a disk adds to a create, and the first read of a disk
 * that is only in the object store. `--quick` only tests the benchmark itself; `--only NAME` runs one part.
 *
 * disk-store.ts measures the block server without VMs.
 */
import { execFileSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { uploadFile } from '../e2e/fixtures/ports/guest-port.ts';
import { listChildren, readCommandLine } from '../e2e/fixtures/host/processes.ts';
import { BlockStore } from './fixtures/block-store.ts';
import { buildLoad, DiskBench, LOAD, LOAD_FILE, SHAPE } from './fixtures/disk-bench.ts';
import { DISK_GB, startDiskGuests } from './fixtures/disk-guests.ts';
import { interleave, summarize, timeMs } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const IS_QUICK = process.argv.includes('--quick');
const ROUNDS = IS_QUICK ? 2 : 7;
const SECONDS = IS_QUICK ? 1 : 2;
const FILE_MIB = IS_QUICK ? 32 : 128;

const WORKLOADS = [
  { name: 'seq-write', label: 'sequential write, 1 MiB', unit: 'MB/s', goal: '≥ 0.9' },
  { name: 'seq-read', label: 'sequential read, 1 MiB', unit: 'MB/s', goal: '≥ 0.9' },
  { name: 'rand-write', label: 'random write, 4 KiB, 8 at once', unit: '/s', goal: '≥ 0.9' },
  { name: 'rand-read', label: 'random read, 4 KiB, 8 at once', unit: '/s', goal: '≥ 0.9' },
  { name: 'fsync', label: 'write of 4 KiB and fdatasync', unit: 'ms', goal: '≤ 1.2' },
] as const;

async function benchDiskLoad(bench: DiskBench): Promise<Figure[]> {
  using store = new BlockStore();
  const guests = await startDiskGuests(bench, store, FILE_MIB);
  const figures: Figure[] = [];
  for (const { name, label, unit, goal } of WORKLOADS) {
    const contenders = guests.map(({ name: guest, run, settle }) => ({
      name: `${label}, ${guest}`,
      run: async (): Promise<number> => {
        const figure = Number(await run(`${LOAD} ${LOAD_FILE} ${name} ${SECONDS}`));
        await settle();
        return figure;
      },
    }));
    const values = await interleave(contenders, ROUNDS);
    const figure = compare({ name: label, against: 'a raw file in the same QEMU', goal, unit, values });
    const [, , overlay] = [...values].map(([each, list]) => summarize(each, unit, list));
    const sample = overlay ?? figure.ours;
    const note = `without draining ${(sample.median / figure.floor.median).toFixed(2)}`;
    figures.push({ ...figure, samples: [...figure.samples, sample], note });
  }
  for (const { end } of guests) await end();
  return figures;
}

/** A write with its flush, as the guest's clock has it. The guest got the host's clock when it was created. */
interface Flushed {
  startMs: number;
  endMs: number;
}

function longestWithin(writes: readonly Flushed[], from: number, to: number): number | undefined {
  const inside = writes.filter(({ startMs, endMs }) => startMs < to && endMs > from);
  return inside.length === 0 ? undefined : Math.max(...inside.map(({ startMs, endMs }) => endMs - startMs));
}

/** Measures the longest write with a flush that overlaps a snapshot of the disk: a seal, a drain and a rebase. */
async function benchFlips(bench: DiskBench): Promise<Figure[]> {
  const flips = IS_QUICK ? 3 : 20;
  const load = await buildLoad();
  const disk = await bench.createDisk(DISK_GB);
  const id = await bench.createWithLoad(load, { disk });
  await bench.run(id, `${LOAD} ${LOAD_FILE} fill ${FILE_MIB}`);
  await bench.flush(disk);
  const writing = bench.run(id, `${LOAD} ${LOAD_FILE} stall ${2 * flips + 4}`);
  await delay(1000);
  const during: number[][] = [];
  const took: number[] = [];
  for (let flip = 0; flip < flips; flip += 1) {
    const from = Date.now();
    await bench.snapshot(disk, `flip-${flip}`);
    during.push([from, Date.now()]);
    took.push(Date.now() - from);
    await delay(1000 + randomInt(300));
  }
  const writes = (await writing)
    .trim()
    .split('\n')
    .slice(0, -1)
    .map((line) => line.split(' ').map((each) => Number(each) / 1000))
    .map(([startMs = 0, ms = 0]) => ({ startMs, endMs: startMs + ms }));
  const inside = during.map(([from = 0, to = 0]) => longestWithin(writes, from, to) ?? NaN);
  // As long, half a second later: nothing changes then, except when the disk drains by itself, every 5 s.
  const outside = during.map(([from = 0, to = 0]) => longestWithin(writes, from + 500, to + 500) ?? NaN);
  await bench.api.destroy(id);
  const values = new Map([
    ['longest flush during a snapshot', inside],
    ['longest flush in as long a time without one', outside],
  ]);
  const against = 'as long a time without one';
  const figure = compare({ name: 'longest flush during a snapshot', against, goal: '–', unit: 'ms', values });
  const all = summarize(
    'all writes of 4 KiB with a flush',
    'ms',
    writes.map(({ startMs, endMs }) => endMs - startMs),
  );
  const calls = summarize('POST …/snapshots of a disk that is written', 'ms', took);
  return [{ ...figure, samples: [...figure.samples, all, calls] }];
}

/** Measures snapshots and forks of disks of three sizes, which no sandbox has. */
async function benchDiskSizes(bench: DiskBench): Promise<Figure[]> {
  const sizes = [1, 10, 100];
  const disks = new Map<number, string>();
  for (const size of sizes) disks.set(size, await bench.createDisk(size));
  const diskOf = (size: number): string => disks.get(size) ?? '';
  let count = 0;
  const snapshots = await interleave(
    sizes.map((size) => ({
      name: `snapshot of ${size} GB`,
      run: () => timeMs(() => bench.snapshot(diskOf(size), `s${(count += 1)}`)),
    })),
    ROUNDS,
  );
  for (const size of sizes) await bench.snapshot(diskOf(size), 'base');
  const forks = await interleave(
    sizes.map((size) => ({
      name: `fork of ${size} GB`,
      run: () => timeMs(() => bench.forkDisk(diskOf(size), 'base', `fork-${(count += 1)}`)),
    })),
    ROUNDS,
  );
  return [...snapshots, ...forks].map(([name, list]) => {
    const sample = summarize(name, 'ms', list);
    return {
      name,
      against: '–',
      ratio: undefined,
      goal: `${sample.median.toFixed(0)} ms, of ≤ 50`,
      samples: [sample],
    };
  });
}

/** Measures what a disk adds to a create from the warm pool. */
async function benchAttach(bench: DiskBench): Promise<Figure[]> {
  const disk = await bench.createDisk(DISK_GB);
  const steps = { workspace: [] as number[], resume: [] as number[], plain: [] as number[] };
  const create = async (more: Record<string, unknown>): Promise<number> => {
    await bench.nextWarm();
    let id = '';
    const elapsedMs = await timeMs(async () => {
      ({ id } = await bench.api.create({ ...SHAPE, ...more }));
    });
    const { workspace = 0, resume = 0 } = await bench.stepsOf(id);
    if ('disk' in more) steps.workspace.push(workspace);
    ('disk' in more ? steps.resume : steps.plain).push(resume);
    await bench.api.destroy(id);
    if ('disk' in more) await bench.untilFree(disk);
    return elapsedMs;
  };
  const values = await interleave(
    [
      { name: 'create with a disk, warm pool', run: () => create({ disk }) },
      { name: 'create without one', run: () => create({}) },
    ],
    2 * ROUNDS,
  );
  const against = 'the same create without a disk';
  const figure = compare({ name: 'create with a disk', against, goal: '', unit: 'ms', values });
  const added = figure.ours.median - figure.floor.median;
  const samples = [
    ...figure.samples,
    summarize('step workspace: bind and attach', 'ms', steps.workspace),
    summarize('step resume, with the mount', 'ms', steps.resume),
    summarize('step resume without a disk', 'ms', steps.plain),
  ];
  return [{ ...figure, goal: `+ ≤ 20 ms (measured + ${added.toFixed(1)})`, samples }];
}

/** Measures the first reads of a disk whose data is in the object store and in no cache of this host. */
async function benchColdRead(bench: DiskBench): Promise<Figure[]> {
  const load = await buildLoad();
  const disk = await bench.createDisk(DISK_GB);
  const writer = await bench.createWithLoad(load, { disk });
  await bench.run(writer, `${LOAD} ${LOAD_FILE} fill ${FILE_MIB}`);
  await bench.flush(disk);
  await bench.api.destroy(writer);
  await bench.untilFree(disk);
  const read =
    'import os,sys,time;f=os.open(sys.argv[1],os.O_RDONLY);s=time.monotonic();os.pread(f,4096,8<<20);a=time.monotonic();n=0\nwhile len(os.pread(f,1<<20,n)):n+=1<<20\nprint((a-s)*1000,n/1e6/(time.monotonic()-a))';
  const cold: number[][] = [];
  const warm: number[][] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    // No VM is connected: QEMU would take some time to notice the new server.
    dropCaches(bench);
    const { id } = await bench.api.create({ ...SHAPE, disk });
    await uploadFile(bench.api, id, '/tmp/read.py', read);
    await bench.run(id, `python3 /tmp/read.py /etc/hostname`);
    for (const list of [cold, warm]) {
      list.push((await bench.run(id, `python3 /tmp/read.py ${LOAD_FILE}`)).split(' ').map(Number));
      await bench.run(id, 'echo 3 > /proc/sys/vm/drop_caches');
    }
    await bench.api.destroy(id);
    await bench.untilFree(disk);
  }
  const part = (list: readonly number[][], index: number): number[] => list.map((each) => each[index] ?? NaN);
  const against = 'the same read again, with the host’s caches';
  return [
    compare({
      name: 'first read of 4 KiB of a cold disk',
      against,
      goal: '–',
      unit: 'ms',
      values: new Map([
        ['first read of 4 KiB, cold', part(cold, 0)],
        ['read of 4 KiB, again', part(warm, 0)],
      ]),
    }),
    compare({
      name: `read of ${FILE_MIB} MiB of a cold disk`,
      against,
      goal: '–',
      unit: 'MB/s',
      values: new Map([
        ['read, cold', part(cold, 1)],
        ['read, again', part(warm, 1)],
      ]),
    }),
  ];
}

/** Ends the block server, whose successor has nothing in memory, and drops the objects from the host's page cache. */
function dropCaches({ service }: DiskBench): void {
  const runner = service.rolePid('runner');
  for (const supervisor of listChildren(runner).filter((pid) => readCommandLine(pid).includes('serve')))
    for (const server of listChildren(supervisor)) process.kill(server, 'SIGKILL');
  const objects = join(service.dataDir, 'runner', 'disks');
  const drop = ['dd', 'of={}', 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0', 'status=none'];
  execFileSync('find', [objects, '-type', 'f', '-exec', ...drop, ';']);
}

const PARTS = { benchDiskLoad, benchFlips, benchDiskSizes, benchAttach, benchColdRead };

/** Runs all parts, or one, each with a service of its own. */
export async function benchDisks(only?: string): Promise<{ figures: Figure[]; accelerator: string }> {
  const figures: Figure[] = [];
  let accelerator = '';
  for (const [name, measure] of Object.entries(PARTS)) {
    if (only !== undefined && only !== name) continue;
    process.stderr.write(`${name} …\n`);
    await using bench = await DiskBench.start(measure === benchAttach ? 2 : 0);
    figures.push(...(await measure(bench)));
    accelerator = await bench.service.readAccelerator();
  }
  return { figures, accelerator };
}

if (import.meta.main) {
  const at = process.argv.indexOf('--only');
  const only = at === -1 ? undefined : process.argv[at + 1];
  const { figures, accelerator } = await benchDisks(only);
  report(`disks${only === undefined ? '' : `-${only}`}${IS_QUICK ? '-quick' : ''}`, accelerator, figures);
}
