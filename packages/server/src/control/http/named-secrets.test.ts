/** Named secrets in the API: their values in sandboxes, refusals, and who may do what. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { sql } from 'kysely';
import { AccountClient } from '../testing/requests/account-client.ts';
import { CANARY, findCanary } from '../testing/canary.ts';
import { INVITATION, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

const IMAGE = 'node:22-slim';
const RULES = [{ methods: ['GET'], paths: ['/repos/a'] }];

type Call = ControlHarness['call'];

let harness: ControlHarness;
let owner: AccountClient;
before(async () => {
  harness = await startHarness();
  owner = await AccountClient.signUp(harness, { invitation: INVITATION });
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(() => {
  harness.runner.networkAbsence = '';
});

const callAs =
  (apiKey: string): Call =>
  (method, path, options) =>
    harness.call(method, path, { apiKey, ...options });

/** Returns a function that calls the API for a new organization. */
const addCaller = async (): Promise<Call> => callAs(await harness.addOrganization());
const put = (call: Call, name: string, value: unknown) =>
  call('PUT', `/v1/secrets/${name}`, { body: { value } });
const create = (call: Call, body: object) => call('POST', '/v1/runs', { body: { image: IMAGE, ...body } });
const secretsOf = (id: string): string[] =>
  (harness.runner.egress.get(id)?.grants ?? []).map(({ service, secret }) => `${service.name}=${secret}`);

test('a secret is stored, replaced, listed by name and deleted, and no answer holds its value', async () => {
  const call = await addCaller();
  const first = await put(call, 'openai-production', CANARY);
  assert.equal(first.status, 200, JSON.stringify(first.body));
  const { created_at, updated_at, ...rest } = first.body;
  const fields = { name: 'openai-production', version: 1, sandboxes: 0, outdated_sandboxes: 0 };
  assert.deepEqual([rest, updated_at], [fields, created_at]);
  const other = (await put(call, 'github', CANARY)).body;
  const second = (await put(call, 'openai-production', `${CANARY}2`)).body;
  assert.deepEqual([second.version, second.created_at], [2, created_at]);
  assert.ok(second.updated_at >= created_at);
  const list = (await call('GET', '/v1/secrets')).body;
  assert.deepEqual(list, [other, second]);
  assert.deepEqual((await call('GET', '/v1/secrets/github')).body, other);
  assert.ok(!JSON.stringify([first.body, list]).includes(CANARY));

  const deleted = await call('DELETE', '/v1/secrets/openai-production');
  assert.deepEqual([deleted.status, deleted.body], [204, undefined]);
  for (const method of ['GET', 'DELETE']) {
    const gone = await call(method, '/v1/secrets/openai-production');
    assert.deepEqual([gone.status, gone.body.error.code], [404, 'not_found']);
  }
  assert.equal((await put(call, 'openai-production', 'anew')).body.version, 1);
});

test('a wrong name or value is refused by its field, without showing the value', async () => {
  const call = await addCaller();
  const refused: [path: string, body: unknown, message: RegExp][] = [
    ['x', {}, /^value: is required, must be a string$/],
    ['x', { value: `${CANARY}\n` }, /^value: must not contain control characters/],
    ['x', { value: `Bearer ${CANARY}` }, /^value: .*without "Bearer"$/],
    ['x', { value: CANARY.repeat(400) }, /^value: must be at most 8192 bytes$/],
    ['x', { value: '' }, /^value: must not be empty$/],
    ['x', { value: { secret: CANARY } }, /^value: must be a string$/],
    ['x', { value: 'v', description: 'd' }, /^description: unknown field/],
    ['x', CANARY, /^body: must be a JSON object/],
    ['OpenAI', { value: 'v' }, /^name: must be the name of a secret: 1–40/],
    ['a%2Fb', { value: 'v' }, /^name: must be the name of a secret/],
    ['a%00', { value: 'v' }, /^name: must not contain a NUL character/],
    ['a'.repeat(41), { value: 'v' }, /^name: must be the name of a secret/],
    [CANARY.toUpperCase(), { value: 'v' }, /^name: must be the name of a secret/],
  ];
  for (const [name, body, message] of refused) {
    const answer = await call('PUT', `/v1/secrets/${name}`, { body });
    assert.deepEqual([answer.status, answer.body.error.code], [400, 'invalid_request'], name);
    assert.match(answer.body.error.message, message);
    assert.ok(!JSON.stringify(answer.body).toLowerCase().includes(CANARY));
  }
  assert.equal((await call('GET', '/v1/secrets/A%2FB')).status, 404);
  assert.deepEqual((await call('GET', '/v1/secrets')).body, []);
});

test('credentials of both forms get the values of the secrets that they name', async () => {
  const call = await addCaller();
  await put(call, 'one', 'sk-1');
  await put(call, 'two', 'ghp-2');
  const credentials = { openai: { secret: 'one' }, anthropic: { secret: 'one' }, google: 'own' };
  const credentials_v2 = { github: { key: { secret: 'two' }, endpoints: RULES } };
  const { status, body } = await create(call, { credentials, credentials_v2 });
  assert.equal(status, 201, JSON.stringify(body));
  const expected = ['anthropic=sk-1', 'github=ghp-2', 'google=own', 'openai=sk-1'];
  assert.deepEqual(secretsOf(body.id), expected);
  const listed = (await call('GET', `/v1/runs/${body.id}/credentials`)).body;
  assert.deepEqual(
    listed.map(({ service, secret }: { service: string; secret: string | null }) => [service, secret]),
    [
      ['anthropic', 'one'],
      ['github', 'two'],
      ['google', null],
      ['openai', 'one'],
    ],
  );
  assert.deepEqual(listed[1].endpoints, RULES);
  assert.equal((await call('GET', '/v1/secrets/one')).body.sandboxes, 1);

  const body2 = { credentials: { openai: { secret: 'two' } } };
  assert.equal((await call('PUT', `/v1/runs/${body.id}/credentials`, { body: body2 })).status, 200);
  assert.deepEqual(secretsOf(body.id), ['openai=ghp-2']);
  assert.equal((await call('GET', '/v1/secrets/one')).body.sandboxes, 0);
});

test('the audit log names the secrets of credentials, and no value', async () => {
  await put(harness.call.bind(harness), 'logged', CANARY);
  const { id } = await harness.create();
  const body = { credentials: { openai: { secret: 'logged' }, github: 'own' } };
  assert.equal((await harness.call('PUT', `/v1/runs/${id}/credentials`, { body })).status, 200);
  const text = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  const changed = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
    .find(({ event }) => event === 'credentials.changed');
  assert.deepEqual(changed.data.credentials, [
    { service: 'github', endpoints: null },
    { service: 'openai', endpoints: null, secret: 'logged' },
  ]);
});

test('a secret that the organization lacks is refused by its field in every request, without showing the name', async () => {
  const [call, other] = [await addCaller(), await addCaller()];
  await put(other, 'theirs', 'v');
  await put(call, 'mine', 'v');
  const { id } = (await create(call, { credentials: { openai: { secret: 'mine' } } })).body;
  const { id: snapshot_id } = (await call('POST', `/v1/runs/${id}/snapshot`, { body: {} })).body;
  const simple = { credentials: { openai: { secret: 'theirs' } } };
  const ruled = { credentials_v2: { openai: { key: { secret: 'theirs' }, endpoints: [] } } };
  for (const [body, field] of [
    [simple, 'credentials.openai.secret'],
    [ruled, 'credentials_v2.openai.key.secret'],
  ] as const) {
    const answers = [
      await create(call, body),
      await call('POST', '/v1/runs/restore', { body: { snapshot_id, ...body } }),
      await call('PUT', `/v1/runs/${id}/credentials`, { body }),
    ];
    for (const answer of answers) {
      assert.deepEqual([answer.status, answer.body.error?.code], [400, 'invalid_request']);
      assert.equal(
        answer.body.error.message,
        `${field}: the organization has no secret of this name; store it first with PUT /v1/secrets/{name}`,
      );
    }
  }
  assert.deepEqual(secretsOf(id), ['openai=v']);
  assert.equal((await call('GET', '/v1/runs?status=failed')).body.length, 0, 'no create was begun');
});

test('organizations have secrets of the same name, and none sees, uses, changes or deletes that of another', async () => {
  const [call, other] = [await addCaller(), await addCaller()];
  await put(call, 'shared', 'mine');
  assert.deepEqual((await other('GET', '/v1/secrets')).body, []);
  for (const method of ['GET', 'DELETE'])
    assert.equal((await other(method, '/v1/secrets/shared')).status, 404);
  const theirs = await put(other, 'shared', 'theirs');
  assert.deepEqual([theirs.status, theirs.body.version], [200, 1]);
  const credentials = { openai: { secret: 'shared' } };
  const [a, b] = [await create(call, { credentials }), await create(other, { credentials })];
  assert.deepEqual([secretsOf(a.body.id), secretsOf(b.body.id)], [['openai=mine'], ['openai=theirs']]);
  await put(other, 'shared', 'new');
  assert.deepEqual([secretsOf(a.body.id), secretsOf(b.body.id)], [['openai=mine'], ['openai=new']]);
  assert.equal((await call('GET', '/v1/secrets/shared')).body.version, 1);
});

test('keys with the scope "read" or of one team list secrets; others change them; all that may create use them', async () => {
  const make = async (limits: object): Promise<Call> =>
    callAs((await owner.call('POST', `${owner.team}/keys`, { name: 'a key', ...limits })).body.key);
  const [full, read, team] = [await make({}), await make({ scope: 'read' }), await make({ team_only: true })];
  const { id } = (await owner.call('POST', `${owner.organization}/teams`, { name: 'second' })).body;
  const keys = `${owner.organization}/teams/${id}/keys`;
  const second = callAs((await owner.call('POST', keys, { name: 'a key', team_only: true })).body.key);
  await put(full, 'scoped', 'v');
  for (const call of [read, team]) {
    for (const [method, body] of [
      ['PUT', { value: 'x' }],
      ['DELETE', undefined],
    ] as const) {
      const answer = await call(method, '/v1/secrets/scoped', body === undefined ? {} : { body });
      assert.deepEqual([answer.status, answer.body.error.code], [403, 'forbidden'], method);
    }
    assert.equal((await call('GET', '/v1/secrets/scoped')).body.version, 1);
  }
  const used = await create(team, { credentials: { openai: { secret: 'scoped' } } });
  assert.deepEqual([used.status, secretsOf(used.body.id)], [201, ['openai=v']]);
  const counts = await Promise.all(
    [full, team, second].map(async (call) => (await call('GET', '/v1/secrets/scoped')).body.sandboxes),
  );
  assert.deepEqual(counts, [1, 1, 0], 'a key of a team counts the sandboxes of the team');
});

test('a secret that credentials name is not deleted, until its sandboxes have ended or have others', async () => {
  const call = await addCaller();
  await put(call, 'used', 'v');
  const credentials = { openai: { secret: 'used' } };
  const make = async (): Promise<string> => (await create(call, { credentials })).body.id;
  const [own, hibernated, running] = [await make(), await make(), await make()];
  await call('POST', `/v1/runs/${hibernated}/hibernate`, { body: {} });
  const refused = await call('DELETE', '/v1/secrets/used');
  assert.deepEqual([refused.status, refused.body.error.code], [409, 'secret_in_use']);
  for (const id of [own, hibernated, running]) assert.ok(refused.body.error.message.includes(id), id);
  assert.deepEqual(secretsOf(own), ['openai=v']);
  await call('PUT', `/v1/runs/${own}/credentials`, { body: { credentials: { openai: 'own' } } });
  for (const id of [hibernated, running]) await call('DELETE', `/v1/runs/${id}`);
  assert.equal((await call('DELETE', '/v1/secrets/used')).status, 204);
  assert.deepEqual(secretsOf(own), ['openai=own']);
});

test('an organization has at most 1000 secrets, and can replace them at the limit', async () => {
  const apiKey = await harness.addOrganization();
  const call = callAs(apiKey);
  await put(call, 'first', 'v');
  {
    await using db = harness.openDatabase();
    await sql`
      INSERT INTO named_secrets (id, organization_id, name, sealed_value, version, created_at, updated_at)
      SELECT id || n, organization_id, 's' || n, sealed_value, 1, 0, 0
      FROM named_secrets, generate_series(1, 998) n
      WHERE name = 'first'`.execute(db);
  }
  assert.equal((await put(call, 'last', 'v')).status, 200);
  const over = await put(call, 'one-more', 'v');
  assert.deepEqual([over.status, over.body.error.code], [429, 'capacity']);
  assert.match(over.body.error.message, /1000 secrets, which is the limit/u);
  assert.equal((await put(call, 'first', 'w')).body.version, 2);
  assert.equal((await call('GET', '/v1/secrets')).body.length, 1000);
});

test('without a network, credentials that name a secret are refused, as others are', async () => {
  const call = await addCaller();
  await put(call, 'unusable', 'v');
  harness.runner.networkAbsence = 'the service runs as an ordinary user';
  const answer = await create(call, { credentials: { openai: { secret: 'unusable' } } });
  assert.equal(answer.status, 400);
  assert.match(answer.body.error.message, /^credentials: no credentials can be granted/u);
});

test('under one Idempotency-Key, the name of a secret is the same request before and after a new value', async () => {
  const call = await addCaller();
  await put(call, 'again', 'v');
  await put(call, 'other', 'v');
  const headers = { 'idempotency-key': 'with-a-name' };
  const send = (key: unknown) =>
    call('POST', '/v1/runs', { headers, body: { image: IMAGE, credentials: { openai: key } } });
  const first = await send({ secret: 'again' });
  await put(call, 'again', 'w');
  const repeated = await send({ secret: 'again' });
  assert.deepEqual([repeated.status, repeated.body.id], [201, first.body.id]);
  for (const key of [{ secret: 'other' }, 'again', 'v']) assert.equal((await send(key)).status, 422);
});

test('under another master key a secret must be stored again, and is then used', async () => {
  await using own = await startHarness();
  const call = own.call.bind(own);
  await put(call, 'lost', 'v');
  const credentials = { openai: { secret: 'lost' } };
  const { id } = await own.create({ credentials });
  await own.stopControl();
  writeFileSync(join(own.config.dataDir, 'master.key'), randomBytes(32));
  await own.startControl();
  await waitFor('healthz', async () => (await own.call('GET', '/healthz')).status === 200);
  const refused = await call('PUT', `/v1/runs/${id}/network`, { body: { network: { allow: ['a.test'] } } });
  assert.deepEqual([refused.status, refused.body.error.code], [409, 'secret_unreadable']);
  assert.match(refused.body.error.message, /the stored secret value of lost .* store it again/u);
  const stored = await put(call, 'lost', 'anew');
  assert.deepEqual([stored.status, stored.body.version], [200, 2]);
  assert.equal(own.runner.egress.get(id)?.grants[0]?.secret, 'anew');
});

test('no answer, log line or row has a value in clear text', async () => {
  const call = harness.call.bind(harness);
  const answers: string[] = [];
  const keep = async (answer: ReturnType<Call>) => {
    const { body } = await answer;
    answers.push(JSON.stringify(body ?? null));
    return body;
  };
  await keep(put(call, 'hidden', CANARY));
  await keep(put(call, 'hidden', `${CANARY}\n`));
  await keep(call('PUT', '/v1/secrets/hidden', { body: { value: CANARY, more: 1 } }));
  const { id } = await keep(create(call, { credentials: { openai: { secret: 'hidden' } } }));
  await keep(create(call, { credentials: { openai: { secret: CANARY } } }));
  await keep(create(call, { credentials: { openai: { secret: `${CANARY}.` } } }));
  await keep(call('GET', `/v1/runs/${id}/credentials`));
  await keep(call('GET', '/v1/secrets'));
  await keep(call('DELETE', '/v1/secrets/hidden'));
  await keep(put(call, 'hidden', `${CANARY}-new`));
  assert.deepEqual(secretsOf(id), [`openai=${CANARY}-new`]);
  answers.push(await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text());
  assert.deepEqual(await findCanary(harness, answers), []);
});
