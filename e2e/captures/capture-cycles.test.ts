/** Growth over repeated captures: a sandbox hibernated and resumed many times, forks of forks, and their disk usage. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Api } from '../fixtures/api/api.ts';
import { diskBytes } from '../fixtures/captures/capture-files.ts';
import { CountingGuest } from '../fixtures/captures/capture-guest.ts';
import { CloneApi } from '../fixtures/clones/clone-api.ts';
import { assertConsistent } from '../fixtures/host/inventory.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';
import { IS_LONG } from '../fixtures/test-size.ts';

const MIB = 1 << 20;
const CYCLES = IS_LONG ? 50 : 12;
/** Number of first cycles, and of last cycles, that are compared. */
const COMPARED = IS_LONG ? 10 : 4;
const FILE_KIB = 256;
/** Tolerance for other load on the machine, which does not average out over few cycles. */
const LATENCY_FACTOR = IS_LONG ? 1.5 : 3;
const LATENCY_MARGIN_MS = 250;
/** Disk usage besides the written files: metadata of two file systems, and PostgreSQL's log. */
const DISK_MARGIN_MIB = IS_LONG ? 48 : 32;
const DEPTH = 8;
/** Margin of the runner's own directory, in which nothing is left. */
const LEFT_MARGIN_MIB = 2;

interface Cycle {
  hibernateMs: number;
  resumeMs: number;
  /** Size of the data directory while the sandbox is hibernated. */
  diskMiB: number;
}

function medianOf(cycles: readonly Cycle[], what: keyof Cycle): number {
  const values = cycles.map((cycle) => cycle[what]).toSorted((a, b) => a - b);
  return Math.round(values[values.length >> 1] ?? NaN);
}

async function timed(work: Promise<void>): Promise<number> {
  const startedAt = performance.now();
  await work;
  return performance.now() - startedAt;
}

describe('repeated captures', { concurrency: false }, () => {
  let service: Service;
  let api: Api;
  let clones: CloneApi;
  /** Size of the runner's directory with image and template but no sandbox. */
  let emptyMiB = 0;

  const runnerMiB = (): number => diskBytes(join(service.dataDir, 'runner')) / MIB;

  before(async () => {
    service = await startPrepared({ instance: 12 });
    api = new Api(service);
    clones = new CloneApi(api);
    await (await CountingGuest.create(api)).destroy();
    await assertConsistent(api);
    emptyMiB = runnerMiB();
  });
  after(() => service?.[Symbol.asyncDispose]());

  /** Verifies the sums of all files, read from the disk and not from the guest's page cache. */
  const verifySums = async (id: string, files: number): Promise<void> => {
    const check = 'sync; echo 3 > /proc/sys/vm/drop_caches; sha256sum --check --quiet sums && wc -l < sums';
    const { exit_code, stdout, stderr } = await api.exec(id, check, { timeout: 60, cwd: '/workspace' });
    assert.equal(exit_code, 0, `${stdout}${stderr}`);
    assert.equal(stdout.trim(), String(files));
  };

  const writeFile = async (id: string, name: string): Promise<void> => {
    const command = `head -c ${FILE_KIB}K /dev/urandom > ${name} && sha256sum ${name} >> sums`;
    const { exit_code, stderr } = await api.exec(id, command, { cwd: '/workspace' });
    assert.equal(exit_code, 0, stderr);
  };

  const cycleOnce = async (guest: CountingGuest, number: number): Promise<Cycle> => {
    await writeFile(guest.id, `file-${number}`);
    const hibernateMs = await timed(clones.hibernate(guest.id));
    const diskMiB = diskBytes(service.dataDir) / MIB;
    const resumeMs = await timed(clones.resume(guest.id));
    return { hibernateMs, resumeMs, diskMiB };
  };

  it(`${CYCLES} hibernations and resumes lose no file, and at the end take no longer and no more disk`, async () => {
    const guest = await CountingGuest.create(api);
    // Memory in use from the start, so that early and late cycles save the same amount.
    await api.exec(guest.id, 'head -c 64M /dev/urandom > /dev/shm/used');
    const cycles: Cycle[] = [];
    for (let number = 1; number <= CYCLES; number += 1) {
      const since = await guest.count();
      cycles.push(await cycleOnce(guest, number));
      await guest.waitUntilCounting(since);
      if (number % COMPARED === 0) await verifySums(guest.id, number);
    }
    const [first, last] = [cycles.slice(0, COMPARED), cycles.slice(-COMPARED)];
    for (const what of ['hibernateMs', 'resumeMs', 'diskMiB'] as const) {
      const most = Math.round(Math.max(...cycles.map((cycle) => cycle[what])));
      const medians = `median of the first ${medianOf(first, what)}, of the last ${medianOf(last, what)}`;
      console.log(`${what}: ${medians}, at most ${most}`);
    }
    for (const what of ['hibernateMs', 'resumeMs'] as const) {
      const limit = medianOf(first, what) * LATENCY_FACTOR + LATENCY_MARGIN_MS;
      assert.ok(medianOf(last, what) <= limit, `${what}: ${medianOf(last, what)}, at most ${limit}`);
    }
    const writtenMiB = ((CYCLES - COMPARED) * FILE_KIB) / 1024;
    const grownMiB = medianOf(last, 'diskMiB') - medianOf(first, 'diskMiB');
    assert.ok(grownMiB <= writtenMiB + DISK_MARGIN_MIB, `${grownMiB} MiB more, ${writtenMiB} were written`);
    await assertConsistent(api);
    await guest.destroy();
    await assertEmpty();
  });

  it(`forks to depth ${DEPTH}: the deepest has the files of all generations, even when all others are destroyed`, async () => {
    const first = await CountingGuest.create(api);
    const line = [first];
    await writeFile(first.id, 'generation-0');
    for (let depth = 1; depth <= DEPTH; depth += 1) {
      const parent = line.at(-1)!;
      const since = await parent.count();
      const [record] = await clones.fork(parent.id, 1);
      assert.equal(record!.parent_id, parent.id);
      const child = new CountingGuest(api, record!.id);
      await child.waitUntilCounting(since);
      await writeFile(child.id, `generation-${depth}`);
      line.push(child);
    }
    for (const [depth, guest] of line.entries()) await verifySums(guest.id, depth + 1);
    const deepest = line.pop()!;
    for (const guest of line) await guest.destroy();
    await verifySums(deepest.id, DEPTH + 1);
    await deepest.waitUntilCounting(0);
    await assertConsistent(api);
    await deepest.destroy();
    await assertEmpty();
  });

  it('a snapshot of a fork outlives its family, and deleting it frees its disk space', async () => {
    const parent = await CountingGuest.create(api);
    await writeFile(parent.id, 'file');
    const [record] = await clones.fork(parent.id, 1);
    const snapshotId = await clones.snapshot(record!.id);
    for (const id of [parent.id, record!.id]) assert.equal((await api.destroy(id)).status, 200);
    const restored = new CountingGuest(api, (await clones.restore(snapshotId)).id);
    await clones.deleteSnapshot(snapshotId);
    await verifySums(restored.id, 1);
    await restored.waitUntilCounting(0);
    await restored.destroy();
    await assertEmpty();
  });

  const assertEmpty = async (): Promise<void> => {
    const { units, captures } = await assertConsistent(api);
    assert.deepEqual({ units, captures }, { units: [], captures: [] });
    const leftMiB = runnerMiB() - emptyMiB;
    assert.ok(leftMiB <= LEFT_MARGIN_MIB, `${leftMiB} MiB more than at the beginning`);
  };
});
