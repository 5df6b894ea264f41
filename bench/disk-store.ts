/**
 * Measures what the block server does without VMs: draining overlays against a plain copy of the same bytes to the same
 * store, over a directory and over an S3 server on this host; what it stores for each changed byte; snapshots and forks by
 * size; and what a fork stores. `--quick` only tests the benchmark itself.
 */
import { randomBytes, randomInt } from 'node:crypto';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { S3Location } from '../packages/server/src/lib/objects/object-store-config.ts';
import { ObjectServer } from '../packages/server/src/lib/objects/testing/object-server.ts';
import { BlockStore, type Written } from './fixtures/block-store.ts';
import { DrainedDisk, type Content } from './fixtures/drained-disk.ts';
import { interleave, summarize, timeMs, type Sample } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
const LEAF_BYTES = 64 * MIB;
const IS_QUICK = process.argv.includes('--quick');
const ROUNDS = IS_QUICK ? 2 : 7;
const DRAINED_MIB = IS_QUICK ? 32 : 128;
const PAGE_BYTES = 4096;
const PAGES = 4096;
/** After some drains each block has the number of frames that it usually has. */
const SETTLED = IS_QUICK ? 1 : 8;
const PAGE_DRAINS = IS_QUICK ? 3 : 24;
const FORKS = 20;

/** Pages anywhere in the part of the disk that has content. */
function scatter(): Written[] {
  const pages = (DRAINED_MIB * MIB) / PAGE_BYTES;
  const offsets = new Set(Array.from({ length: PAGES }, () => randomInt(pages) * PAGE_BYTES));
  return [...offsets].map((offset) => ({ offset, content: randomBytes(PAGE_BYTES) }));
}

/** A figure without a comparison. */
function alone(sample: Sample, goal: string, ratio?: number): Figure {
  return { name: sample.name, against: '–', ratio, goal, samples: [sample] };
}

async function benchDrain(content: Content, kind: string, location?: S3Location): Promise<Figure[]> {
  await using disk = await DrainedDisk.create(content, DRAINED_MIB * MIB, location);
  const rate = (elapsedMs: number): number => (DRAINED_MIB * MIB) / 1000 / elapsedMs;
  const stored: number[] = [];
  const name = `drain of ${DRAINED_MIB} MiB, ${content}, ${kind}`;
  const drain = async (): Promise<number> => {
    const { elapsedMs, storedBytes, changedBytes } = await disk.drain([{ offset: 0, content: disk.bytes }]);
    stored.push(storedBytes / changedBytes);
    return rate(elapsedMs);
  };
  const copy = async (): Promise<number> => rate(await disk.copy());
  const values = await interleave(
    [
      { name, run: drain },
      { name: `plain copy of ${content}, ${kind}`, run: copy },
    ],
    ROUNDS,
  );
  const against = 'a plain copy of the same bytes';
  const figures: Figure[] = [compare({ name, against, goal: '≥ 0.7', unit: 'MB/s', values })];
  const sequence = summarize(`stored for each changed byte, ${content} in sequence, ${kind}`, '', stored);
  figures.push(alone(sequence, '≤ 1.3', sequence.median));
  if (content === 'random bytes') figures.push(...(await benchPages(disk, kind)));
  return figures;
}

/** Drains random pages, over and over: a block is stored anew when it has its largest number of frames. */
async function benchPages(disk: DrainedDisk, kind: string): Promise<Figure[]> {
  const drains = [];
  while (drains.length < PAGE_DRAINS) drains.push(await disk.drain(scatter()));
  const amplifications = drains.map(({ storedBytes, changedBytes }) => storedBytes / changedBytes);
  const name = `stored for each changed byte, ${PAGES} random pages, ${kind}`;
  const first = summarize(`${name}, first drain`, '', amplifications.slice(0, 1));
  const later = summarize(`${name}, later drains`, '', amplifications.slice(SETTLED));
  const mean = later.runs === 0 ? NaN : sum(amplifications.slice(SETTLED)) / later.runs;
  const elapsed = drains.map(({ elapsedMs }) => elapsedMs);
  const figure = alone(later, '≤ 1.3', mean);
  figure.samples.push(summarize(`drain of ${PAGES} random pages, ${kind}`, 'ms', elapsed));
  return [alone(first, '≤ 1.3', first.median), figure];
}

const sum = (values: readonly number[]): number => values.reduce((total, each) => total + each, 0);

/** Makes a disk with data in each leaf of its map, so that the map has its full size. */
async function fillDisk(
  store: BlockStore,
  gib: number,
): Promise<{ disk: string; epoch: number; version: number }> {
  const disk = `disk-${gib}`;
  await store.create(disk, gib * GIB);
  const { epoch } = await store.take(disk);
  const leaves = (gib * GIB) / LEAF_BYTES;
  const parts = Array.from({ length: leaves }, (_, leaf) => ({
    offset: leaf * LEAF_BYTES,
    content: randomBytes(PAGE_BYTES),
  }));
  const name = store.writeOverlay(gib * GIB, parts);
  const { version } = await store.drain(disk, epoch, name);
  return { disk, epoch, version };
}

async function benchCopies(): Promise<Figure[]> {
  using store = new BlockStore();
  let count = 0;
  const contenders = [];
  let largest = { disk: '', version: 0 };
  for (const gib of [1, 10, 100]) {
    const { disk, epoch, version } = await fillDisk(store, gib);
    largest = { disk, version };
    const snapshot = (): Promise<unknown> => store.snapshot(disk, epoch, `s${(count += 1)}`);
    const fork = (): Promise<unknown> => store.fork(disk, version, `f${(count += 1)}`);
    contenders.push(
      { name: `snapshot of ${gib} GiB, block server`, run: () => timeMs(snapshot) },
      { name: `fork of ${gib} GiB, block server`, run: () => timeMs(fork) },
    );
  }
  const values = await interleave(contenders, 2 * ROUNDS);
  const figures = [...values].map(([name, list]) => {
    const sample = summarize(name, 'ms', list);
    return alone(sample, `${sample.median.toFixed(1)} ms, of ≤ 50`);
  });
  const before = storedBytes(store);
  for (let fork = 0; fork < FORKS; fork += 1) await store.fork(largest.disk, largest.version, `more-${fork}`);
  const kibibytes = (storedBytes(store) - before) / FORKS / 1024;
  return [...figures, alone(summarize('stored for each fork of 100 GiB', 'KiB', [kibibytes]), '–')];
}

function storedBytes({ objects }: BlockStore): number {
  return readdirSync(objects, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
}

export async function benchDiskStore(): Promise<Figure[]> {
  await using server = await ObjectServer.start();
  const figures: Figure[] = [];
  for (const content of ['random bytes', 'a program'] as const) {
    figures.push(...(await benchDrain(content, 'directory')));
    figures.push(...(await benchDrain(content, 'S3', server.locate())));
  }
  return [...figures, ...(await benchCopies())];
}

if (import.meta.main) report(`disk-store${IS_QUICK ? '-quick' : ''}`, 'no VM', await benchDiskStore());
