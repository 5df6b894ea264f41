/** A key that is limited to its team sees only the team's sandboxes and what derives from them. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { HistoryRecord, SandboxRecord, SandboxTree, Statement } from '@coppice/contract';
import { AccountClient } from '../testing/requests/account-client.ts';
import { INVITATION, startHarness, type ControlHarness } from '../testing/control-harness.ts';
import {
  describeOperation,
  fillPath,
  isReading,
  listOperations,
  type Operation,
} from '../testing/requests/described-operations.ts';

/** Text that the limited key must never read. */
const MARK = 'other-teams-own';
/** Operations whose path names something of the whole organization, or a month. A limited key may not see webhooks. */
const NAMES_NO_SANDBOX: ReadonlySet<string> = new Set([
  'putRegistry',
  'deleteRegistry',
  'putBudget',
  'deleteBudget',
  'putSecret',
  'getSecret',
  'deleteSecret',
  'getStatement',
  'importDisk',
  'getWebhook',
  'patchWebhook',
  'deleteWebhook',
  'rotateWebhook',
  'testWebhook',
  'listDeliveries',
  'retryDelivery',
]);
const IMAGE = 'node:22-slim';

interface Team {
  id: string;
  name: string;
  /** Sees the whole organization. */
  wide: string;
  /** Sees its team. */
  own: string;
}

let harness: ControlHarness;
let owner: AccountClient;
let first: Team;
let second: Team;
/** The second team's values of path parameters. */
const ids: Record<string, string> = {
  port: '80',
  context: `context${'0'.repeat(20)}`,
  registry: 'registry.one.test',
  disk: 'named',
  name: 'of-all-teams',
  diskSnapshot: 'named',
  scope: 'organization',
};
const BODIES: Record<string, () => unknown> = {
  createSandbox: () => ({ image: IMAGE }),
  restoreSandbox: () => ({ snapshot_id: ids['snapshot'] }),
  rollBackSandbox: () => ({ snapshot_id: ids['snapshot'] }),
  exec: () => ({ command: 'id' }),
  execStream: () => ({ command: 'id' }),
  createCommand: () => ({ command: 'id' }),
  signalCommand: () => ({ signal: 'SIGKILL' }),
  buildImage: () => ({ image: 'node:latest' }),
  makeDirectory: () => ({ path: 'x' }),
  moveFile: () => ({ from: 'x', to: 'y' }),
  changeFileMode: () => ({ path: 'x', mode: '644' }),
  changeFileOwner: () => ({ path: 'x', user: 'root' }),
  createFileLink: () => ({ path: 'x', method: 'download' }),
  setNetwork: () => ({ network: {} }),
  createDisk: () => ({ name: 'x', size_gb: 1 }),
  createDiskSnapshot: () => ({ name: 'x' }),
  forkDisk: () => ({ snapshot: 'x', name: 'y' }),
  createWebhook: () => ({ url: 'https://own.test/' }),
};

before(async () => {
  harness = await startHarness();
  owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  first = await addTeam('builders');
  second = await addTeam('testers');
  const run = await create(second.wide, { labels: { of: MARK }, network: { allow: [`${MARK}.test`] } });
  const snapshot = await post(`/v1/runs/${run.id}/snapshot`, second.wide, { name: MARK });
  const preview = await post(`/v1/runs/${run.id}/ports/80/preview`, second.wide);
  const command = await post(`/v1/runs/${run.id}/commands`, second.wide, { command: MARK });
  const ended = await create(second.wide, { labels: { of: MARK } });
  await harness.call('DELETE', `/v1/runs/${ended.id}`, { apiKey: second.wide });
  Object.assign(ids, { run: run.id, ended: ended.id, snapshot: snapshot.id, previewId: preview.id });
  ids['command'] = command.id;
  // Refusals repeat names of the path: those are others.
  for (const name of [MARK, ids['disk']]) await post('/v1/disks', second.wide, { name, size_gb: 1 });
  for (const name of [MARK, ids['diskSnapshot']])
    await post(`/v1/disks/${ids['disk']}/snapshots`, second.wide, { name });
  const webhook = (await post('/v1/webhooks', second.wide, { url: `https://${MARK}.test/` })).id;
  Object.assign(ids, { webhook, delivery: (await post(`/v1/webhooks/${webhook}/test`, second.wide)).id });
  const steps = { from: IMAGE, name: 'of-second:1', steps: [{ run: MARK }], detached: true };
  ids['build'] = (await post('/v1/images/build', second.wide, steps)).id;
  ids['month'] = new Date().toISOString().slice(0, 7);
});
after(() => harness[Symbol.asyncDispose]());

async function addTeam(name: string): Promise<Team> {
  const { body } = await owner.call('POST', `${owner.organization}/teams`, { name });
  const path = `${owner.organization}/teams/${body.id}/keys`;
  const make = async (limits: object) =>
    (await owner.call('POST', path, { name: 'a key', ...limits })).body.key as string;
  return { id: body.id, name, wide: await make({}), own: await make({ team_only: true }) };
}

const get = async (path: string, apiKey: string) => (await harness.call('GET', path, { apiKey })).body;
const post = async (path: string, apiKey: string, body: object = {}) =>
  (await harness.call('POST', path, { apiKey, body })).body;
const create = (apiKey: string, body: object = {}): Promise<SandboxRecord> =>
  post('/v1/runs', apiKey, { image: IMAGE, ...body });
async function statusOf(path: string, apiKey: string): Promise<number> {
  const response = await harness.fetch('GET', path, { apiKey });
  await response.body?.cancel();
  return response.status;
}

const idsOf = (records: readonly { id: string }[]): string[] => records.map(({ id }) => id).toSorted();

async function ask(operation: Operation, apiKey: string) {
  const body = isReading(operation) ? {} : { body: BODIES[operation.id]?.() ?? {} };
  const response = await harness.fetch(operation.method, fillPath(operation, ids), { apiKey, ...body });
  return { status: response.status, text: await response.text() };
}

test("another team's sandbox looks absent on every route", async () => {
  const operations = (await listOperations(harness)).filter(({ path }) => path.startsWith('/v1/'));
  assert.ok(operations.length >= 40);
  for (const operation of operations) {
    const { status, text } = await ask(operation, first.own);
    assert.ok(!text.includes(MARK), `${describeOperation(operation)} revealed ${text}`);
    const namesOne = operation.path.includes('{') && !NAMES_NO_SANDBOX.has(operation.id);
    if (namesOne || operation.id === 'restoreSandbox')
      assert.equal(status, 404, `${describeOperation(operation)}: ${text}`);
  }
  for (const path of [`/v1/runs/${ids['ended']}`, `/v1/runs/${ids['ended']}/audit`])
    assert.deepEqual([await statusOf(path, first.own), await statusOf(path, first.wide)], [404, 200], path);
  const own = await create(first.own);
  const body = { snapshot_id: ids['snapshot'] };
  const rollback = await harness.call('POST', `/v1/runs/${own.id}/rollback`, { apiKey: first.own, body });
  assert.equal(rollback.status, 404);
});

test('objects of the team are visible, whichever of its keys made them', async () => {
  const run = await create(first.wide);
  assert.equal(run.team_id, first.id);
  assert.equal(await statusOf(`/v1/runs/${run.id}`, first.own), 200);
  assert.ok(idsOf(await get('/v1/runs', first.own)).includes(run.id));
  const snapshot = await post(`/v1/runs/${run.id}/snapshot`, first.wide);
  assert.deepEqual(idsOf(await get('/v1/snapshots', first.own)), [snapshot.id]);
  assert.deepEqual(
    idsOf(await get('/v1/snapshots', first.wide)),
    idsOf([{ id: ids['snapshot'] ?? '' }, snapshot]),
  );
  const restored = await post('/v1/runs/restore', first.own, { snapshot_id: snapshot.id });
  const [child] = (await post(`/v1/runs/${run.id}/fork`, first.own)) as SandboxRecord[];
  assert.deepEqual([restored.team_id, child?.team_id], [first.id, first.id]);
  assert.equal(
    (await harness.call('DELETE', `/v1/snapshots/${snapshot.id}`, { apiKey: first.own })).status,
    204,
  );
});

test('lists are limited to the team by its id, its name, or a key that is limited to it', async () => {
  const ofTeam = async (query: string, apiKey: string): Promise<Set<string>> =>
    new Set(((await get(`/v1/runs${query}`, apiKey)) as SandboxRecord[]).map(({ team_id }) => team_id));
  for (const status of ['', '&status=running&status=destroyed']) {
    assert.deepEqual(await ofTeam(`?limit=100${status}`, first.wide), new Set([first.id, second.id]));
    for (const team of [second.id, second.name])
      assert.deepEqual(
        await ofTeam(`?team=${team}${status}`, first.wide),
        new Set([second.id]),
        team + status,
      );
    assert.deepEqual(await ofTeam(`?limit=100${status}`, second.own), new Set([second.id]));
    assert.deepEqual(await ofTeam(`?team=${second.name}${status}`, second.own), new Set([second.id]));
  }
});

test('a team that the key does not see looks absent, and the next page keeps its team', async () => {
  for (const [team, apiKey] of [
    ['nobody', first.wide],
    [`team${'0'.repeat(20)}`, first.wide],
    [second.id, first.own],
    [second.name, first.own],
  ] as const) {
    const { status, body } = await harness.call('GET', `/v1/runs?team=${team}`, { apiKey });
    assert.deepEqual([status, body.error.code], [404, 'not_found']);
    assert.match(body.error.message, /^team: /u);
  }
  const foreign = await harness.addOrganization();
  assert.equal(await statusOf(`/v1/runs?team=${second.id}`, foreign), 404);
  assert.equal(await statusOf('/v1/runs?team=', first.wide), 400);
  await create(second.wide);
  const page = await harness.call('GET', `/v1/runs?team=${second.name}&limit=1`, { apiKey: first.wide });
  const next = /<([^>]+)>/.exec(page.headers.get('link') ?? '')?.[1] ?? '';
  const rest = (await get(next, first.wide)) as SandboxRecord[];
  assert.ok(rest.length > 0 && rest.every(({ team_id }) => team_id === second.id));
});

test('usage, history and statement are those of the team, and add up to those of the organization', async () => {
  const ended = await create(first.own);
  await harness.call('DELETE', `/v1/runs/${ended.id}`, { apiKey: first.own });
  const teams = [first.own, second.own];
  const history = await Promise.all(
    teams.map((key) => get('/v1/runs/history', key) as Promise<HistoryRecord[]>),
  );
  assert.deepEqual(idsOf(history[0] ?? []), [ended.id]);
  assert.deepEqual(idsOf(history.flat()), idsOf(await get('/v1/runs/history', first.wide)));
  const usage = await Promise.all(teams.map((key) => get('/v1/usage', key)));
  const whole = await get('/v1/usage', first.wide);
  assert.deepEqual(
    usage.map(({ history_sandboxes }) => history_sandboxes),
    [1, 1],
  );
  for (const field of ['active_sandboxes', 'history_sandboxes'])
    assert.equal(usage[0][field] + usage[1][field], whole[field], field);
  assert.equal(usage[0].history_cost_cents, history[0]?.[0]?.cost_cents);
  const month = `/v1/statements/${ids['month']}`;
  for (const [index, team] of [first, second].entries()) {
    const statement = (await get(month, team.own)) as Statement;
    assert.deepEqual(new Set(statement.lines.map(({ team_id }) => team_id)), new Set([team.id]));
    assert.deepEqual(
      statement.teams.map(({ team_id }) => team_id),
      [team.id],
    );
    assert.ok(statement.lines.some(({ sandbox_id }) => sandbox_id === history[index]?.[0]?.id));
    const csv = await (await harness.fetch('GET', `${month}?format=csv`, { apiKey: team.own })).text();
    const lines = csv.trimEnd().split('\r\n').slice(1);
    assert.ok(lines.length > 0 && lines.every((line) => line.includes(team.id)), csv);
  }
});

test('a team-only key sees the part of a family that belongs to its team', async () => {
  const root = await create(first.wide);
  const snapshot = await post(`/v1/runs/${root.id}/snapshot`, first.wide);
  const theirs = await post('/v1/runs/restore', second.wide, { snapshot_id: snapshot.id });
  const [child] = (await post(`/v1/runs/${theirs.id}/fork`, second.wide)) as SandboxRecord[];
  const treeOf = async (id: string, apiKey: string) => {
    const { root_id, nodes } = (await get(`/v1/runs/${id}/tree`, apiKey)) as SandboxTree;
    return [root_id, ...nodes.map((node) => node.id)];
  };
  const childId = child?.id ?? '';
  assert.deepEqual(await treeOf(childId, second.wide), [root.id, root.id, theirs.id, childId]);
  assert.deepEqual(await treeOf(childId, second.own), [theirs.id, theirs.id, childId]);
  assert.deepEqual(await treeOf(root.id, first.own), [root.id, root.id]);
  assert.equal(await statusOf(`/v1/runs/${theirs.id}/tree`, first.own), 404);
});

test("the same Idempotency-Key does not replay the answer to another team's request", async () => {
  const headers = { 'idempotency-key': 'the-same' };
  const body = { image: IMAGE };
  const make = async (apiKey: string) =>
    (await harness.call('POST', '/v1/runs', { apiKey, headers, body })).body as SandboxRecord;
  const theirs = await make(second.wide);
  const own = await make(first.own);
  assert.notEqual(own.id, theirs.id);
  assert.equal(own.team_id, first.id);
  assert.equal((await make(first.own)).id, own.id);
  assert.equal((await make(first.wide)).id, theirs.id);
});

test('a name that another team uses is free, and stays its own', async () => {
  const name = 'shared';
  const theirs = await create(second.wide, { name });
  const own = await create(first.own, { name });
  const named = async (apiKey: string) => idsOf(await get(`/v1/runs?name=${name}`, apiKey));
  assert.deepEqual(await named(first.own), [own.id]);
  assert.deepEqual(await named(first.wide), [own.id, theirs.id].toSorted());
  const again = await harness.call('POST', '/v1/runs', { apiKey: first.own, body: { image: IMAGE, name } });
  assert.deepEqual([again.status, again.body.error.code], [409, 'already_exists']);
});
