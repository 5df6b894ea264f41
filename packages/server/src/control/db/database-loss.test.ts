/** PostgreSQL ends in the middle of a burst, in every possible way. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

const BACK_MS = 30_000;

async function readPostmaster(harness: ControlHarness): Promise<number> {
  const text = await readFile(join(harness.directory, 'data/postgres/postmaster.pid'), 'utf8');
  return Number(text.split('\n')[0]);
}

interface Burst {
  created: string[];
  destroyed: string[];
  refused: number;
  /** Answers that are neither the expected status nor a 503. */
  odd: string[];
  end: () => Promise<unknown>;
}

/** Creates sandboxes, and destroys every other one, until its end. */
function begin(harness: ControlHarness): Burst {
  const over = new AbortController();
  const users: Promise<void>[] = [];
  const end = (): Promise<unknown> => {
    over.abort();
    return Promise.all(users);
  };
  const burst: Burst = { created: [], destroyed: [], refused: 0, odd: [], end };
  const note = (status: number, wanted: number, what: string): boolean => {
    if (status === 503) burst.refused += 1;
    else if (status !== wanted) burst.odd.push(`${what}: ${status}`);
    return status === wanted;
  };
  const use = async (): Promise<void> => {
    while (!over.signal.aborted) {
      const body = { image: 'node:22-slim', timeout: 0 };
      const made = await harness.call('POST', '/v1/runs', { body });
      if (!note(made.status, 201, 'create')) continue;
      burst.created.push(made.body.id);
      if (burst.created.length % 2 === 0) continue;
      const { status } = await harness.call('DELETE', `/v1/runs/${made.body.id}`);
      if (note(status, 200, 'destroy')) burst.destroyed.push(made.body.id);
    }
  };
  for (let count = 0; count < 8; count += 1) users.push(use());
  return burst;
}

async function listAll(harness: ControlHarness): Promise<Map<string, string>> {
  await using db = harness.openDatabase();
  const rows = await db.selectFrom('sandboxes').select(['id', 'status']).execute();
  return new Map(rows.map(({ id, status }) => [id, status]));
}

for (const [signal, what] of [
  ['SIGQUIT', 'an immediate stop'],
  ['SIGKILL', 'a kill'],
  ['SIGINT', 'a fast stop'],
] as const) {
  test(`${what} in mid-burst: all answered requests are recorded, and all others are settled`, async () => {
    await using harness = await startHarness({}, 'own');
    const burst = begin(harness);
    await waitFor('a burst', () => burst.destroyed.length >= 20, BACK_MS);
    const pid = await readPostmaster(harness);
    process.kill(pid, signal);
    const isAnother = async (): Promise<boolean> => (await readPostmaster(harness).catch(() => pid)) !== pid;
    await waitFor('another postmaster', isAnother, BACK_MS);
    const before = burst.destroyed.length;
    await waitFor('the burst to continue', () => burst.destroyed.length >= before + 20, BACK_MS);
    await burst.end();
    assert.deepEqual(burst.odd, []);
    await waitFor(
      'records and VMs to agree',
      async () => {
        const alive = [...(await listAll(harness))].filter(([, status]) => !/destroyed|failed/u.test(status));
        const ids = alive.map(([id, status]) => (status === 'running' ? id : status)).toSorted();
        return JSON.stringify(ids) === JSON.stringify([...harness.runner.vms.keys()].toSorted());
      },
      BACK_MS,
    );
    const records = await listAll(harness);
    for (const id of burst.destroyed) assert.equal(records.get(id), 'destroyed', id);
    for (const id of burst.created) assert.ok(records.has(id), id);
    const isKept = (id: string): boolean => !burst.destroyed.includes(id);
    for (const id of burst.created.filter(isKept))
      assert.match(String(records.get(id)), /running|destroyed/u, `${id} was answered and must not be lost`);
    await waitFor('the ends to be acknowledged', () => harness.runner.ends.size === 0);
  });
}
