/** Two controls without runners of their own machines: runners that have joined move to the one that starts later. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { sql } from 'kysely';
import { AppError, type HostRecord } from '@coppice/contract';
import { INVITATION, waitFor, type Answer } from '../testing/control-harness.ts';
import { JoinedRunner } from '../testing/controls/joined-runner.ts';
import { TwoControls } from '../testing/controls/two-controls.ts';
import { layOutTar } from '../testing/tar-of-files.ts';
import { AccountClient } from '../testing/requests/account-client.ts';

const RUNNERS = 3;
/** A body that is not held in memory, so it cannot be sent twice. */
const CONTENT = Buffer.alloc(300_000, 'content ');

let both: TwoControls;
const joined: JoinedRunner[] = [];
/** Ids of a sandbox of each runner. */
const ids: string[] = [];

const statusOf = async (path: string, { other = false } = {}): Promise<number> =>
  (await (other ? both.other : both.one).call('GET', path)).status;

before(async () => {
  both = await TwoControls.startWithoutRunners({ controlSettleMs: 0 });
});
after(async () => {
  await both[Symbol.asyncDispose]();
  for (const one of joined) await one[Symbol.asyncDispose]();
});

async function countOwned(): Promise<number[]> {
  await using db = both.one.openDatabase();
  const rows = await db
    .selectFrom('controls')
    .leftJoin('runners', 'runners.owner', 'controls.id')
    .select(({ fn }) => fn.count<number>('runners.id').as('count'))
    .groupBy('controls.id')
    .orderBy('started_at')
    .execute();
  return rows.map(({ count }) => count);
}

function refuse(): never {
  throw new AppError('capacity', 'no memory');
}

/** Creates a sandbox at this runner. */
async function createAt(place: JoinedRunner): Promise<string> {
  for (const one of joined) one.runner.onAdmission = one === place ? () => undefined : refuse;
  let id = '';
  await waitFor('a sandbox of the runner', async () => {
    const made = await both.one.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
    id = made.body.id;
    return made.status === 201;
  });
  for (const one of joined) one.runner.onAdmission = () => undefined;
  assert.ok(place.runner.vms.has(id));
  return id;
}

test('a control is healthy as soon as it, or another one that it reaches, has a runner that answers', async () => {
  const refused = await both.one.call('GET', '/healthz');
  assert.equal(refused.status, 503);
  assert.match(refused.body.error.message, /no runner is connected, neither here nor at another control/u);
  for (let index = 0; index < RUNNERS; index += 1) joined.push(await JoinedRunner.join(both.one));
  await waitFor('its runners', async () => (await statusOf('/healthz')) === 200);
  await waitFor('all of them', async () => (await countOwned())[0] === RUNNERS);
});

test('a control that starts later is healthy without a runner, and other controls answer for it', async () => {
  for (const one of joined) ids.push(await createAt(one));
  // An open command keeps its runner where it is.
  const open = Promise.withResolvers<void>();
  for (const { runner } of joined)
    runner.onExec = (command) => {
      command.stdout('first');
      void open.promise.then(() => command.exit(7));
    };
  const streams = await Promise.all(
    ids.map((id) => both.one.fetch('POST', `/v1/runs/${id}/exec/stream`, { body: { command: 'x' } })),
  );
  await both.startOther();
  assert.equal(await statusOf('/healthz', { other: true }), 200);
  assert.deepEqual(await countOwned(), [RUNNERS, 0], 'streams keep their runners');
  assert.equal((await both.other.create()).status, 'running');
  const disk = await both.other.call('POST', '/v1/disks', { body: { name: 'forwarded', size_gb: 1 } });
  assert.equal(disk.status, 201);
  assert.equal((await both.other.call('DELETE', '/v1/disks/forwarded')).status, 204);
  assert.equal(await statusOf('/v1/images', { other: true }), 200);
  // The files of a build go to where it will run.
  const raw = layOutTar([{ path: 'a', content: 'x' }]);
  const context = await both.other.call('POST', '/v1/images/contexts', { raw });
  assert.equal(context.status, 201, JSON.stringify(context.body));
  const [builder, idle] = [both.one, both.other].map(({ config }) =>
    readdirSync(join(config.dataDir, 'build-contexts')),
  );
  assert.deepEqual([builder, idle], [[`${context.body.id}.tar`], []]);
  open.resolve();
  for (const stream of streams)
    assert.match(await stream.text(), /"data":"first"[\s\S]*"type":"exit","data":"7"/u);
});

test('a runner that is not in use moves, and no request of its sandboxes fails', async () => {
  for (const { runner } of joined) runner.onExec = (command) => command.exit(0);
  const balanced = new AbortController();
  const work = ids.map(async (id) => {
    const faults: string[] = [];
    const note = ({ status, body }: Answer): void => {
      if (status !== 200) faults.push(`${status} ${JSON.stringify(body)}`);
    };
    while (!balanced.signal.aborted) {
      note(await both.one.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } }));
      note(await both.one.call('POST', `/v1/runs/${id}/files/upload?path=/w/a`, { raw: CONTENT }));
      note(await both.other.call('GET', `/v1/runs/${id}`));
    }
    return faults;
  });
  await waitFor(
    'one runner for the other control',
    async () => (await countOwned()).join() === '2,1',
    30_000,
  );
  balanced.abort();
  assert.deepEqual((await Promise.all(work)).flat(), []);
  await waitFor('the other control has it', () =>
    both.other.logLines.some((line) => line.includes('the runner is connected')),
  );
  for (const id of ids) {
    assert.equal((await both.other.call('DELETE', `/v1/runs/${id}`)).status, 200);
    assert.ok(joined.every(({ runner }) => !runner.vms.has(id)));
  }
  assert.deepEqual(await countOwned(), [2, 1], 'with one more than the other, nothing moves');
});

test('each control shows operators the runners of both, and those that are cordoned or away', async () => {
  const operator = await AccountClient.signUp(both.other, { invitation: INVITATION });
  const [cordoned, away] = joined;
  assert.ok(cordoned && away);
  await using db = both.one.openDatabase();
  await db.updateTable('runners').set({ cordoned_at: 1 }).where('id', '=', cordoned.runner.id).execute();
  const read = async (): Promise<HostRecord> =>
    (await operator.call('GET', '/account/operator/host')).body as HostRecord;
  const { controls, runners } = await read();
  assert.deepEqual(
    controls.map(({ leading, answers, runners: count }) => [leading, answers, count]),
    [
      [true, false, 2],
      [false, true, 1],
    ],
  );
  assert.deepEqual(
    runners.map(({ state, measured }) => [state, measured?.mem_mib.limit]),
    [
      ['connected', 4096],
      ['connected', 4096],
      ['connected', 4096],
    ],
  );
  const of = (list: HostRecord['runners'], one: JoinedRunner) => list.find(({ id }) => id === one.runner.id);
  assert.equal(of(runners, cordoned)?.cordoned, true);
  await away.runner.stop();
  await sql`UPDATE runners SET heard_at = heard_at - 60000 WHERE id = ${away.runner.id}`.execute(db);
  await waitFor('the state', async () => of((await read()).runners, away)?.state === 'away');
});
