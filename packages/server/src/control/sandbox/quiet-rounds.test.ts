/** Rounds for which a heartbeat stands: what they still do, and what makes a round read the roster. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { hibernateStored, readPlace } from '../testing/controls/stored-hibernation.ts';
import { TwoControls } from '../testing/controls/two-controls.ts';

/** Beats more often than rounds, so that each has a heartbeat before it. */
function beat({ runner }: ControlHarness): Disposable {
  const beating = setInterval(() => runner.beat(), 40);
  return { [Symbol.dispose]: () => clearInterval(beating) };
}

const count = ({ runner }: ControlHarness, wanted: string): number =>
  runner.requests.filter((request) => request === wanted).length;

const countRosters = (harness: ControlHarness): number => count(harness, 'GET /roster');

/** Resolves at the end of the next round that reads the roster. Two quiet ones follow. */
async function waitForReadingRound(harness: ControlHarness): Promise<void> {
  const captures = count(harness, 'GET /captures');
  await waitFor('a round that reads the roster', () => count(harness, 'GET /captures') > captures);
}

/** Returns the moment of the last round of its runner. */
async function readRound(harness: ControlHarness): Promise<number> {
  await using db = harness.openDatabase();
  const { seen_boot_ms } = await db
    .selectFrom('runners')
    .select('seen_boot_ms')
    .where('id', '=', harness.runner.id)
    .executeTakeFirstOrThrow();
  return seen_boot_ms ?? 0;
}

async function waitForRounds(harness: ControlHarness, rounds: number): Promise<void> {
  const seen = new Set<number>();
  await waitFor('rounds', async () => seen.add(await readRound(harness)).size > rounds);
}

test('a quiet round adopts what another control has given to the runner', async () => {
  await using both = await TwoControls.start({ reconcileIntervalMs: 1_000 });
  const { one, other } = both;
  const { id } = await one.create();
  await hibernateStored(one, { id });
  using _ = beat(other);
  await waitForReadingRound(other);
  const rosters = countRosters(other);
  await using db = one.openDatabase();
  const { version } = await db
    .selectFrom('sandboxes')
    .select('version')
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  await db
    .updateTable('sandboxes')
    .set({ runner_id: other.runner.id, version: version + 1 })
    .where('id', '=', id)
    .execute();
  const isAdopted = (): boolean =>
    other.logLines.some((line) => line.includes(id) && line.includes('taken over'));
  await waitFor('the adoption', isAdopted);
  assert.equal(countRosters(other), rosters, 'without the roster');
});

test('a quiet round tells the other controls that the runner answers', async () => {
  await using harness = await startHarness({ reconcileIntervalMs: 1_000 });
  await using db = harness.openDatabase();
  using _ = beat(harness);
  await harness.create();
  const readHeard = async (): Promise<number> =>
    (await db.selectFrom('runners').select('heard_at').executeTakeFirstOrThrow()).heard_at ?? 0;
  await waitForReadingRound(harness);
  const rosters = countRosters(harness);
  const heard = new Set<number>();
  await waitFor('two more rounds', async () => heard.add(await readHeard()).size >= 3);
  assert.equal(countRosters(harness), rosters, 'without the roster');
});

test('while a resume may be under way, each round reads the roster, until the runner does not begin it any more', async () => {
  await using harness = await startHarness({ reconcileIntervalMs: 300 });
  const { id } = await harness.create();
  await hibernateStored(harness, { id });
  await harness.stopControl();
  await using db = harness.openDatabase();
  await db.updateTable('sandboxes').set({ is_resuming: true }).where('id', '=', id).execute();
  const { restoring } = harness.runner.captures;
  restoring.add(id);
  using _ = beat(harness);
  await harness.startControl();
  await waitForRounds(harness, 1);
  const rosters = countRosters(harness);
  await waitForRounds(harness, 7);
  const read = countRosters(harness) - rosters;
  assert.ok(read >= 5, `${read} rosters in 7 rounds`);
  assert.equal((await readPlace(harness, id)).is_resuming, true);
  restoring.delete(id);
  await waitFor('the end of the mark', async () => !(await readPlace(harness, id)).is_resuming);
});
