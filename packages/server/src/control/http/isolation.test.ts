/**
 * Requests every route of the API for objects of another organization. The routes come from the API's own description,
 * so a new route is tested as soon as it exists. A route that needs more than an empty body has an entry in `BODIES`.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AccountClient, PASSWORD } from '../testing/requests/account-client.ts';
import { layOutTar } from '../testing/tar-of-files.ts';
import { INVITATION, startHarness, type Answer, type ControlHarness } from '../testing/control-harness.ts';
import {
  describeOperation,
  fillPath,
  isReading,
  listOperations,
  type Operation,
} from '../testing/requests/described-operations.ts';

interface Named {
  name: string;
  version: number;
}

interface Ended {
  labels: { of?: string };
}

/** Text that a stranger must never read. A stranger never sends it. */
const MARK = 'victims-own';
const NAME_OF_NONE = 'x';
/** Operations whose path names something that each organization has of its own. */
const NAMES_NO_ID: ReadonlySet<string> = new Set(['putRegistry', 'deleteRegistry', 'getStatement']);
/** Operations that would end the session that the next ones need. */
const ENDS_SESSION: ReadonlySet<string> = new Set(['signOut']);
/** They would make the stranger a disk or a secret of the same name, which the next operations would find. */
const TAKES_NAME: ReadonlySet<string> = new Set(['importDisk', 'putSecret']);

let harness: ControlHarness;
let operations: Operation[] = [];
let victim: AccountClient;
let stranger: AccountClient;
let strangersKey = '';
/** The victim's values of path parameters. */
const ids: Record<string, string> = {
  port: '80',
  disk: 'named',
  name: 'named',
  diskSnapshot: 'named',
  registry: 'registry.victim.test',
  month: new Date().toISOString().slice(0, 7),
};

const BODIES: Record<string, () => unknown> = {
  createSandbox: () => ({ image: 'node:22-slim' }),
  restoreSandbox: () => ({ snapshot_id: ids['snapshot'] }),
  rollBackSandbox: () => ({ snapshot_id: ids['snapshot'] }),
  exec: () => ({ command: 'id' }),
  execStream: () => ({ command: 'id' }),
  createCommand: () => ({ command: 'id' }),
  signalCommand: () => ({ signal: 'SIGKILL' }),
  buildImage: () => ({ image: 'node:latest' }),
  setNetwork: () => ({ network: {} }),
  putBudget: () => ({ month_cents: 1 }),
  putRegistry: () => ({ username: NAME_OF_NONE, password: NAME_OF_NONE }),
  signUp: () => ({ email: 's@example.test', name: 's', password: PASSWORD, invitation: 'inv_none' }),
  signIn: () => ({ email: victim.email, password: 'wrong password' }),
  changePassword: () => ({ current_password: 'wrong password', new_password: PASSWORD }),
  acceptInvitation: () => ({ invitation: INVITATION }),
  createOrganization: () => ({ name: NAME_OF_NONE }),
  renameOrganization: () => ({ name: NAME_OF_NONE }),
  changeRole: () => ({ role: 'owner' }),
  createTeam: () => ({ name: NAME_OF_NONE }),
  renameTeam: () => ({ name: NAME_OF_NONE }),
  createApiKey: () => ({ name: NAME_OF_NONE }),
  createDisk: () => ({ name: NAME_OF_NONE, size_gb: 1 }),
  createDiskSnapshot: () => ({ name: NAME_OF_NONE }),
  createFileLink: () => ({ path: NAME_OF_NONE, method: 'upload' }),
  makeDirectory: () => ({ path: NAME_OF_NONE }),
  moveFile: () => ({ from: NAME_OF_NONE, to: NAME_OF_NONE }),
  changeFileMode: () => ({ path: NAME_OF_NONE, mode: '644' }),
  changeFileOwner: () => ({ path: NAME_OF_NONE, user: NAME_OF_NONE }),
  forkDisk: () => ({ snapshot: NAME_OF_NONE, name: NAME_OF_NONE }),
  createWebhook: () => ({ url: 'https://strangers.test/' }),
};

before(async () => {
  harness = await startHarness();
  const operator = await AccountClient.signUp(harness, { invitation: INVITATION, email: 'op@example.test' });
  const first = await operator.addOrganization(`${MARK} organization`);
  victim = await first.invite('owner');
  await fill(victim);
  const second = await operator.addOrganization('strangers');
  stranger = await second.invite('owner');
  strangersKey = (await stranger.call('POST', `${stranger.team}/keys`, { name: 'theirs' })).body.key;
  operations = await listOperations(harness);
});
after(() => harness[Symbol.asyncDispose]());

/** Creates one of everything that an organization can have. */
async function fill(owner: AccountClient): Promise<void> {
  const post = async (path: string, body: unknown) => (await owner.call('POST', path, body)).body;
  const { id: key, key: apiKey } = await post(`${owner.team}/keys`, { name: `${MARK} key` });
  const team = (await post(`${owner.organization}/teams`, { name: `${MARK} team` })).id;
  const invitation = (await post(`${owner.organization}/invitations`, { email: `${MARK}@example.test` })).id;
  const secret = (await post(`${owner.team}/audit-secrets`, {})).id;
  const [session] = (await owner.call('GET', '/account/sessions')).body;
  await owner.call('PUT', `${owner.organization}/teams/${team}/members/${owner.id}`);
  const call = async (method: string, path: string, body: unknown) =>
    (await harness.call(method, path, { apiKey, body })).body;
  const run = await call('POST', '/v1/runs', {
    image: 'node:22-slim',
    labels: { of: MARK },
    network: { allow: [`${MARK}.test`] },
    credentials: { openai: MARK },
  });
  const snapshot = await call('POST', `/v1/runs/${run.id}/snapshot`, { name: `${MARK} snapshot` });
  const preview = await call('POST', `/v1/runs/${run.id}/ports/80/preview`, {});
  const command = await call('POST', `/v1/runs/${run.id}/commands`, { command: MARK, tag: MARK });
  const ended = await call('POST', '/v1/runs', { image: 'node:22-slim', labels: { of: MARK } });
  await call('DELETE', `/v1/runs/${ended.id}`, undefined);
  // Refusals repeat names of the path: those are others.
  for (const name of [MARK, ids['name']]) await call('PUT', `/v1/secrets/${name}`, { value: MARK });
  await call('PUT', `/v1/runs/${run.id}/credentials`, {
    credentials: { openai: MARK, github: { secret: MARK } },
  });
  await call('PUT', '/v1/registries/registry.victim.test', { username: MARK, password: MARK });
  for (const name of [MARK, ids['disk']]) await call('POST', '/v1/disks', { name, size_gb: 1 });
  for (const name of [MARK, ids['diskSnapshot']])
    await call('POST', `/v1/disks/${ids['disk']}/snapshots`, { name });
  const webhook = (await call('POST', '/v1/webhooks', { url: `https://${MARK}.test/` })).id;
  const delivery = (await call('POST', `/v1/webhooks/${webhook}/test`, undefined)).id;
  const raw = layOutTar([{ path: MARK, content: MARK }]);
  ids['context'] = (await harness.call('POST', '/v1/images/contexts', { apiKey, raw })).body.id;
  const steps = { from: 'node:22-slim', name: 'of-victim:1', steps: [{ run: MARK }], detached: true };
  const build = (await call('POST', '/v1/images/build', steps)).id;
  Object.assign(ids, { webhook, delivery, build });
  Object.assign(ids, { run: run.id, snapshot: snapshot.id, previewId: preview.id, apiKey });
  ids['command'] = command.id;
  Object.assign(ids, { organization: owner.organizationId, team: owner.teamId, member: owner.id });
  ids['scope'] = owner.teamId;
  await call('PUT', `/v1/budgets/${owner.teamId}`, { month_cents: 1 });
  Object.assign(ids, { key, invitation, secret, session: session.id });
}

/** A GET has no body. */
function bodyOf(operation: Operation): { body?: unknown } {
  return isReading(operation) ? {} : { body: BODIES[operation.id]?.() ?? {} };
}

const isAccount = ({ path }: Operation): boolean => path.startsWith('/account/');
const isOpen = ({ id, path }: Operation): boolean =>
  ['/healthz', '/openapi.json'].includes(path) || id === 'signUp' || id === 'signIn';
const withoutBody = (text: string): unknown => (text === '' ? undefined : JSON.parse(text));

async function ask(operation: Operation, headers: Record<string, string>, apiKey: string | null) {
  const path = fillPath(operation, ids);
  const options = { apiKey, headers: { origin: harness.control?.address ?? '', ...headers } };
  const response = await harness.fetch(operation.method, path, { ...options, ...bodyOf(operation) });
  const text = await response.text();
  return { status: response.status, text, body: withoutBody(text.split('\n')[0] ?? '') };
}

test('the description lists the routes of both kinds', () => {
  assert.ok(operations.filter(isAccount).length >= 30);
  assert.ok(operations.filter((operation) => operation.path.startsWith('/v1/')).length >= 30);
});

test("another organization's objects look absent, to an API key and to a person", async () => {
  for (const operation of operations) {
    if (ENDS_SESSION.has(operation.id) || TAKES_NAME.has(operation.id)) continue;
    const headers: Record<string, string> = isAccount(operation) ? { cookie: stranger.cookie } : {};
    const answer = await ask(operation, headers, isAccount(operation) ? null : strangersKey);
    assert.ok(!answer.text.includes(MARK), `${describeOperation(operation)} revealed ${answer.text}`);
    assert.ok(answer.status < 500, `${describeOperation(operation)} answered ${answer.status}`);
    const namesVictims = operation.path.includes('{') && !NAMES_NO_ID.has(operation.id);
    const isRefused = operation.path.startsWith('/account/operator/');
    if (isRefused) assert.equal(answer.status, 403, describeOperation(operation));
    else if (namesVictims)
      assert.equal(answer.status, 404, `${describeOperation(operation)}: ${answer.text}`);
  }
});

test('usage, history and statement cover only the own organization', async () => {
  const read = async (path: string) => (await harness.call('GET', path, { apiKey: strangersKey })).body;
  const usage = await read('/v1/usage');
  assert.deepEqual([usage.history_sandboxes, usage.history_cost_cents], [0, 0]);
  assert.deepEqual(await read('/v1/runs/history'), []);
  const { teams } = await read(`/v1/statements/${ids['month']}`);
  assert.deepEqual(
    teams.map(({ team_id }: { team_id: string }) => team_id),
    [stranger.teamId],
  );
});

test('a snapshot of another organization is neither restored nor rolled back to', async () => {
  const own = await harness.call('POST', '/v1/runs', {
    apiKey: strangersKey,
    body: { image: 'node:22-slim' },
  });
  const body = { snapshot_id: ids['snapshot'] };
  for (const path of ['/v1/runs/restore', `/v1/runs/${own.body.id}/rollback`]) {
    const answer = await harness.call('POST', path, { apiKey: strangersKey, body });
    assert.equal(answer.status, 404, `${path}: ${JSON.stringify(answer.body)}`);
  }
});

test('a secret of another organization is neither named by credentials nor replaced', async () => {
  const call = (method: string, path: string, body: unknown) =>
    harness.call(method, path, { apiKey: strangersKey, body });
  const create = (name: string) =>
    call('POST', '/v1/runs', { image: 'node:22-slim', credentials: { openai: { secret: name } } });
  const refused = await create(ids['name'] ?? '');
  assert.deepEqual([refused.status, refused.body.error.code], [400, 'invalid_request']);
  assert.equal((await call('PUT', `/v1/secrets/${ids['name']}`, { value: 'strangers' })).body.version, 1);
  const own = await create(ids['name'] ?? '');
  assert.equal(harness.runner.egress.get(own.body.id)?.grants[0]?.secret, 'strangers');
});

test('a context of another organization is not built with', async () => {
  const body = { from: 'node:22-slim', name: 'a:1', steps: [], context: ids['context'] };
  const refused = await harness.call('POST', '/v1/images/build', { apiKey: strangersKey, body });
  assert.equal(refused.status, 400, JSON.stringify(refused.body));
  assert.match(refused.body.error.message, /^context: there is no such context/u);
});

test('a port of another organization is proxied by no method', async () => {
  for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
    const path = `/v1/runs/${ids['run']}/proxy/80/`;
    assert.equal((await harness.fetch(method, path, { apiKey: strangersKey })).status, 404, method);
  }
});

test('an API key reaches nothing below /account, a session nothing below /v1, and an anonymous caller nothing', async () => {
  for (const operation of operations.filter((each) => !isOpen(each))) {
    const name = describeOperation(operation);
    const crossed = isAccount(operation)
      ? await ask(operation, {}, ids['apiKey'] ?? '')
      : await ask(operation, { cookie: victim.cookie }, null);
    assert.equal(crossed.status, 401, `${name}: ${crossed.text}`);
    assert.equal((await ask(operation, {}, null)).status, 401, name);
  }
});

test('the id of a team, a key or a secret is valid only in its own organization', async () => {
  const { organization } = stranger;
  const tries: [string, string][] = [
    ['GET', `${organization}/teams/${ids['team']}/keys`],
    ['POST', `${organization}/teams/${ids['team']}/keys`],
    ['GET', `${organization}/teams/${ids['team']}/members`],
    ['GET', `${organization}/teams/${ids['team']}/audit-secrets/${ids['secret']}`],
    ['GET', `${stranger.team}/audit-secrets/${ids['secret']}`],
    ['DELETE', `${stranger.team}/keys/${ids['key']}`],
    ['POST', `${stranger.team}/keys/${ids['key']}/rotate`],
    ['PUT', `${stranger.team}/members/${ids['member']}`],
    ['DELETE', `${organization}/members/${ids['member']}`],
    ['DELETE', `${organization}/invitations/${ids['invitation']}`],
  ];
  for (const [method, path] of tries) {
    const answer = await stranger.call(method, path, path.endsWith('/keys') ? { name: 'x' } : undefined);
    assert.equal(answer.status, 404, `${method} ${path}: ${JSON.stringify(answer.body)}`);
  }
});

test('after all of this the victim has what it had', async () => {
  const read = async (path: string): Promise<Answer['body']> =>
    (await harness.call('GET', path, { apiKey: ids['apiKey'] ?? '' })).body;
  assert.equal((await read(`/v1/runs/${ids['run']}`)).status, 'running');
  assert.deepEqual((await read(`/v1/runs/${ids['run']}/network`)).network.allow, [`${MARK}.test`]);
  assert.equal((await read(`/v1/runs/${ids['run']}/credentials`)).length, 2);
  assert.deepEqual(
    (await read('/v1/secrets')).map(({ name, version }: Named) => [name, version]),
    [
      ['named', 1],
      [MARK, 1],
    ],
  );
  assert.equal((await read('/v1/snapshots')).length, 1);
  assert.equal((await read('/v1/registries'))[0].username, MARK);
  assert.equal((await read(`/v1/runs/${ids['run']}/previews`)).length, 1);
  assert.deepEqual(
    (await read('/v1/runs/history')).map(({ labels }: Ended) => labels.of),
    [MARK],
  );
  assert.equal((await read('/v1/usage')).history_sandboxes, 1);
  const context = `/v1/images/contexts/${ids['context']}`;
  assert.equal((await harness.call('DELETE', context, { apiKey: ids['apiKey'] ?? '' })).status, 200);
  const { body } = await victim.call('GET', victim.organization);
  assert.equal(body.name, `${MARK} organization`);
  assert.equal((await victim.call('GET', `${victim.organization}/invitations`)).body.length, 1);
});
