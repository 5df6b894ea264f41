/** Networks and credentials in the API: refusals, the settings that the runner receives, and hidden secrets. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { AppError, NetworkPolicy } from '@coppice/contract';
import { sql } from 'kysely';
import { findCanary, CANARY } from '../testing/canary.ts';
import { startHarness, waitFor, type Answer, type ControlHarness } from '../testing/control-harness.ts';

const ALLOW_LIST = { allow: ['api.test'], deny: [] };
const STORED = NetworkPolicy.parse({
  version: 1,
  profile: null,
  default: 'deny',
  allow: ['api.test'],
  deny: [],
});
const OPEN = { version: 1, profile: null, default: 'allow', allow: [], deny: [] };

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(() => {
  harness.runner.onEgress = () => undefined;
  harness.runner.networkAbsence = '';
});

const post = (path: string, body: object, headers: Record<string, string> = {}): Promise<Answer> =>
  harness.call('POST', path, { body, headers });
const create = (body: object): Promise<Answer> => post('/v1/runs', { image: 'node:22-slim', ...body });
const put = (id: string, what: string, body: unknown): Promise<Answer> =>
  harness.call('PUT', `/v1/runs/${id}/${what}`, { body });
const get = async (id: string, what: string): Promise<Answer> =>
  harness.call('GET', `/v1/runs/${id}/${what}`);

async function listEvents(id: string): Promise<{ event: string; data: Record<string, unknown> }[]> {
  const text = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}

const secretsOf = (id: string): string[] =>
  (harness.runner.egress.get(id)?.grants ?? []).map(({ service, secret }) => `${service.name}=${secret}`);

test('a create sends its network and credentials to the runner with the VM', async () => {
  const { id } = await harness.create({
    network: ALLOW_LIST,
    credentials: { openai: CANARY },
    credentials_v2: { github: { key: 'ghp_x', endpoints: [{ methods: ['get'], paths: ['/repos/a/*'] }] } },
  });
  const egress = harness.runner.egress.get(id);
  assert.deepEqual(egress?.network, STORED);
  assert.deepEqual(secretsOf(id), ['github=ghp_x', `openai=${CANARY}`]);
  assert.deepEqual(egress?.grants[0]?.endpoints, [{ methods: ['GET'], paths: ['/repos/a/*'] }]);
  assert.equal(egress?.grants[1]?.endpoints, null);
  const plain = await harness.create();
  assert.equal(harness.runner.creates.at(-1)?.egress, undefined);
  assert.deepEqual((await get(plain.id, 'network')).body.network, { allow: [], deny: [] });
});

test('the network record has the policy in force and its counters', async () => {
  const { id } = await harness.create({ network_profile: 'locked-down' });
  const { status, body } = await get(id, 'network');
  assert.equal(status, 200);
  assert.equal(body.network_profile, 'locked-down');
  assert.deepEqual(body.network, { allow: [], deny: ['0.0.0.0/0'] });
  assert.equal(body.counters.connections_blocked, 0);
  harness.runner.counters = { ...harness.runner.counters, connections_open: null, bytes_sent: 7 };
  const { counters } = (await get(id, 'network')).body;
  assert.deepEqual([counters.connections_open, counters.bytes_sent], [null, 7]);
  assert.deepEqual(body.warnings, []);
  const { body: profiles } = await harness.call('GET', '/v1/network-profiles');
  assert.deepEqual(
    profiles.map(({ name }: { name: string }) => name),
    ['unrestricted', 'locked-down', 'claude-code', 'openai', 'packages'],
  );
  assert.match(profiles[4].description, /knows no hosts of: pypi, npm, crates/u);
});

test('bad rules, profiles and credentials are refused by field, and create nothing', async () => {
  const before = (await harness.call('GET', '/v1/runs?status=failed&status=running&limit=500')).body.length;
  const endpoints = (paths: string[]) => ({ openai: { key: 'k', endpoints: [{ methods: [], paths }] } });
  const refused: [object, RegExp][] = [
    [{ network: {}, network_profile: 'openai' }, /^network, network_profile: exclude each other/],
    [{ network_profile: 'none-such' }, /^network_profile: there is no "none-such"/],
    [{ network_profile: 'Locked Down' }, /^network_profile: must be 1–63 of/],
    [{ network: { allow: ['a.test'], deny: ['a.test'] } }, /^network.allow\[0\]: "a.test" contradicts/],
    [{ network: { allow: [''] } }, /^network.allow\[0\]: must not be empty/],
    [{ network: { allow: ['https://a.test/'] } }, /^network.allow\[0\]: /],
    [{ network: { allow: ['a.test:443'] } }, /^network.allow\[0\]: .*port/],
    [{ network: { allow: ['10.0.0.0/33'] } }, /^network.allow\[0\]: /],
    [{ network: { allow: ['127.0.0.1'] } }, /is never reached by a sandbox/],
    [{ network: { allow: ['192.168.1.0/24'] } }, /is private; the operator opens such ranges/],
    [{ network: { allow: ['registry:npm'] } }, /is not known to this server/],
    [{ network: { alow: [] } }, /^network.alow: unknown field/],
    [{ credentials: { nobody: 'k' } }, /^credentials: names an unknown service; known are anthropic/],
    [{ credentials: { openai: '' } }, /^credentials.openai: must not be empty/],
    [{ credentials: { openai: 'a\nb' } }, /^credentials.openai: must not contain control/],
    [{ credentials: { [CANARY]: 'openai' } }, /^credentials: /],
    [{ credentials: { openai: 'a' }, credentials_v2: endpoints(['/v1']) }, /both name openai/],
    [{ credentials_v2: endpoints(['/v1/../admin']) }, /must not contain "\." or "\.\."/],
    [{ credentials_v2: endpoints(['/v1/%2e%2e/admin']) }, /must not contain an encoded/],
    [{ credentials_v2: endpoints(['/v1/a%252fb']) }, /must not be encoded twice/],
    [{ credentials_v2: endpoints(['/other']) }, /must begin with \/v1/],
  ];
  for (const [body, message] of refused) {
    const answer = await create(body);
    assert.equal(answer.status, 400, JSON.stringify(body));
    assert.match(answer.body.error.message, message);
    assert.ok(!answer.body.error.message.includes(CANARY));
  }
  const after = (await harness.call('GET', '/v1/runs?status=failed&status=running&limit=500')).body.length;
  assert.equal(after, before);
});

test('host names are normalized: upper case, trailing dots, other scripts', async () => {
  const network = { allow: ['API.Test.', 'bücher.example', '*.Sub.Test'] };
  const { id } = await harness.create({ network });
  const { allow } = (await get(id, 'network')).body.network;
  assert.deepEqual(allow, ['api.test', 'xn--bcher-kva.example', '*.sub.test']);
});

test('without a network, only requests that restrict and grant nothing are accepted', async () => {
  harness.runner.networkAbsence = 'the service runs as an ordinary user; run it as root';
  const reason = `sandboxes on this machine have no network at all: ${harness.runner.networkAbsence}`;
  const tried: [object, string][] = [
    [{ network: ALLOW_LIST }, `network: no rules can be set, ${reason}`],
    [{ network_profile: 'locked-down' }, `network_profile: no rules can be set, ${reason}`],
    [{ credentials: { openai: 'k' } }, `credentials: no credentials can be granted, ${reason}`],
    [
      { credentials_v2: { openai: { key: 'k', endpoints: [] } } },
      `credentials_v2: no credentials can be granted, ${reason}`,
    ],
  ];
  for (const [body, message] of tried) {
    const answer = await create(body);
    assert.deepEqual([answer.status, answer.body.error?.message], [400, message]);
  }
  for (const body of [{}, { network: {} }, { network_profile: 'unrestricted' }, { credentials: {} }])
    assert.equal((await create(body)).status, 201, JSON.stringify(body));
});

test('a change is in force when it is answered, and is in the audit log', async () => {
  const { id } = await harness.create();
  const answer = await put(id, 'network', { network: { allow: ['api.test', 'api.test'] } });
  assert.equal(answer.status, 200);
  assert.deepEqual(answer.body.network, ALLOW_LIST);
  assert.equal(answer.body.warnings.length, 1);
  assert.deepEqual(harness.runner.egress.get(id)?.network, STORED);
  const changed = (await listEvents(id)).find(({ event }) => event === 'policy.changed');
  assert.equal(changed?.data['policy'], 'rules');
  assert.deepEqual(changed?.data['allow'], ['api.test']);
  const { body: ipv6 } = await put(id, 'network', { network: { allow: ['2001:db8::/32', 'api.test'] } });
  assert.deepEqual(ipv6.warnings, [
    'network.allow[0]: "2001:db8::/32" matches nothing, because sandboxes have no IPv6',
  ]);
  assert.equal((await put(id, 'network', {})).status, 400);
  assert.equal(
    (await put(id, 'network', { network: {}, network_profile: 'openai' })).body.error.code,
    'conflicting_options',
  );
  assert.equal((await put(id, 'network', { network_profile: 'unrestricted' })).status, 200);
  assert.equal(harness.runner.egress.get(id)?.network.default, 'allow');
});

test('a change that the runner refuses leaves the old policy, and the answer says so', async () => {
  const { id } = await harness.create({ network: ALLOW_LIST, credentials: { openai: 'old' } });
  harness.runner.onEgress = () => {
    throw new AppError('internal', 'no');
  };
  for (const [what, body] of [
    ['network', { network: {} }],
    ['credentials', { credentials: { openai: 'new' } }],
  ] as const) {
    const answer = await put(id, what, body);
    assert.equal(answer.status, 503);
    assert.match(answer.body.error.message, /the previous settings still hold/u);
  }
  harness.runner.onEgress = () => undefined;
  assert.deepEqual((await get(id, 'network')).body.network, ALLOW_LIST);
  harness.runner.egress.delete(id);
  await put(id, 'network', { network: ALLOW_LIST });
  assert.deepEqual(secretsOf(id), ['openai=old']);
  assert.ok(!(await listEvents(id)).some(({ event }) => event === 'credentials.changed'));
});

test('credentials are replaced as a set, listed without secrets, and rotate while the sandbox runs', async () => {
  const { id } = await harness.create({ credentials: { openai: 'a', github: 'b' } });
  const answer = await put(id, 'credentials', { credentials: { openai: CANARY } });
  assert.equal(answer.status, 200);
  assert.deepEqual(secretsOf(id), [`openai=${CANARY}`]);
  const listed = await get(id, 'credentials');
  assert.deepEqual(listed.body, answer.body);
  assert.deepEqual(Object.keys(listed.body[0]), ['service', 'endpoints', 'secret', 'updated_at']);
  const changed = (await listEvents(id)).find(({ event }) => event === 'credentials.changed');
  assert.deepEqual(changed?.data, { credentials: [{ service: 'openai', endpoints: null }] });
  assert.equal((await put(id, 'credentials', {})).status, 200);
  assert.deepEqual(secretsOf(id), []);
  assert.deepEqual((await get(id, 'credentials')).body, []);
});

test('a hibernated sandbox stores new settings, and has them from its resume', async () => {
  const { id } = await harness.create({ credentials: { openai: 'a' } });
  assert.equal((await post(`/v1/runs/${id}/hibernate`, {})).status, 200);
  harness.runner.egress.delete(id);
  const { status, body } = await put(id, 'network', { network: ALLOW_LIST });
  assert.deepEqual([status, body.counters], [200, null]);
  assert.equal((await put(id, 'credentials', { credentials: { github: 'g' } })).status, 200);
  assert.equal(harness.runner.egress.has(id), false);
  assert.equal((await post(`/v1/runs/${id}/resume`, {})).status, 200);
  assert.deepEqual(harness.runner.egress.get(id)?.network, STORED);
  assert.deepEqual(secretsOf(id), ['github=g']);
});

test('children inherit network and credentials; a restore has the network of the snapshot and no credentials', async () => {
  const { id } = await harness.create({ network: ALLOW_LIST, credentials: { openai: 'a' } });
  const [child] = (await post(`/v1/runs/${id}/fork`, {})).body;
  assert.deepEqual((await get(child.id, 'network')).body.network, ALLOW_LIST);
  assert.equal((await get(child.id, 'credentials')).body[0].service, 'openai');
  await post(`/v1/runs/${child.id}/hibernate`, {});
  await post(`/v1/runs/${child.id}/resume`, {});
  assert.deepEqual(secretsOf(child.id), ['openai=a']);
  const { id: snapshot_id } = (await post(`/v1/runs/${id}/snapshot`, {})).body;
  const same = (await post('/v1/runs/restore', { snapshot_id })).body;
  assert.deepEqual(harness.runner.egress.get(same.id), { network: STORED, grants: [] });
  const other = (await post('/v1/runs/restore', { snapshot_id, network: {}, credentials: { openai: 'b' } }))
    .body;
  assert.deepEqual(harness.runner.egress.get(other.id)?.network, OPEN);
  assert.deepEqual(secretsOf(other.id), ['openai=b']);
});

test('a sandbox that has ended answers 409, and its secrets are gone from the database', async () => {
  const { id } = await harness.create({ credentials: { openai: CANARY } });
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
  for (const [method, what] of [
    ['GET', 'network'],
    ['PUT', 'network'],
    ['GET', 'credentials'],
    ['PUT', 'credentials'],
  ] as const) {
    const body = method === 'GET' ? {} : { body: what === 'network' ? { network: {} } : {} };
    const answer = await harness.call(method, `/v1/runs/${id}/${what}`, body);
    assert.deepEqual([answer.status, answer.body.error.code], [409, 'invalid_state'], `${method} ${what}`);
  }
  await using db = harness.openDatabase();
  const rows = await db.selectFrom('sandbox_credentials').selectAll().where('sandbox_id', '=', id).execute();
  assert.deepEqual(rows, []);
});

test('under one Idempotency-Key, another secret is another request, and the same secret is the same request', async () => {
  const headers = { 'idempotency-key': 'with-credentials' };
  const body = (secret: string) => ({ image: 'node:22-slim', credentials: { openai: secret } });
  const first = await post('/v1/runs', body('one'), headers);
  const again = await post('/v1/runs', body('one'), headers);
  assert.deepEqual([again.status, again.body.id], [201, first.body.id]);
  assert.equal((await post('/v1/runs', body('two'), headers)).status, 422);
});

test('a runner that was away receives the settings again, with the secrets that it does not store', async () => {
  const { id } = await harness.create({ network: ALLOW_LIST, credentials: { openai: 'a' } });
  await harness.runner.stop();
  harness.runner.egress.clear();
  let refusals = 1;
  harness.runner.onEgress = () => {
    if (refusals > 0) {
      refusals -= 1;
      throw new AppError('unavailable', 'not yet');
    }
  };
  await harness.runner.start();
  await waitFor('the runner to have the settings again', () => secretsOf(id)[0] === 'openai=a');
  assert.deepEqual(harness.runner.egress.get(id)?.network, STORED);
});

test('a change that a killed control had applied but not recorded is reverted', async () => {
  const { id } = await harness.create({ network: ALLOW_LIST });
  await harness.stopControl();
  harness.runner.egress.set(id, { network: { ...STORED, allow: ['evil.test'] }, grants: [] });
  await harness.startControl();
  await waitFor(
    'the policy of the record',
    () => harness.runner.egress.get(id)?.network.allow[0] === 'api.test',
  );
});

test('a change that could not be recorded is reverted at the runner', async () => {
  const { id } = await harness.create({ network: ALLOW_LIST });
  await using db = harness.openDatabase();
  await sql`ALTER TABLE audit_entries ADD CONSTRAINT none CHECK (event <> 'policy.changed') NOT VALID`.execute(
    db,
  );
  try {
    assert.equal((await put(id, 'network', { network: {} })).status, 503);
  } finally {
    await sql`ALTER TABLE audit_entries DROP CONSTRAINT none`.execute(db);
  }
  assert.deepEqual((await get(id, 'network')).body.network, ALLOW_LIST);
  await waitFor('the policy of the record', () => harness.runner.egress.get(id)?.network.default === 'deny');
});

test('a change waits for a running fork, and the children have the old policy', async () => {
  const { id } = await harness.create({ network: ALLOW_LIST });
  const forked = Promise.withResolvers<void>();
  harness.runner.captures.onFork = () => forked.promise;
  const fork = post(`/v1/runs/${id}/fork`, {});
  await harness.waitForRecord(id, ({ operation }) => operation === 'forking');
  const change = put(id, 'network', { network_profile: 'locked-down' });
  forked.resolve();
  const [child] = (await fork).body;
  assert.equal((await change).status, 200);
  harness.runner.captures.reset();
  assert.deepEqual(harness.runner.egress.get(child.id)?.network, STORED);
  assert.deepEqual((await get(child.id, 'network')).body.network, ALLOW_LIST);
  assert.equal(harness.runner.egress.get(id)?.network.profile, 'locked-down');
});

test('no answer, log line or row has a secret in clear text', async () => {
  const answers: string[] = [];
  const keep = (answer: Answer): Answer => {
    answers.push(JSON.stringify(answer.body ?? null));
    return answer;
  };
  const made = keep(await create({ credentials: { openai: CANARY } }));
  const { id } = made.body;
  keep(
    await post(
      '/v1/runs',
      { image: 'node:22-slim', credentials: { openai: CANARY } },
      { 'idempotency-key': 'c' },
    ),
  );
  keep(await create({ credentials: { openai: `${CANARY}\n` } }));
  keep(await create({ credentials: { [CANARY]: 'openai' } }));
  keep(await create({ credentials: CANARY }));
  keep(await create({ credentials_v2: { openai: { key: CANARY, endpoints: [], [CANARY]: 1 } } }));
  harness.runner.onEgress = () => {
    throw new AppError('internal', 'no');
  };
  keep(await put(id, 'credentials', { credentials: { anthropic: CANARY } }));
  harness.runner.onEgress = () => undefined;
  keep(await put(id, 'credentials', { credentials: { anthropic: CANARY } }));
  keep(await get(id, 'credentials'));
  keep(await get(id, 'network'));
  keep(await post(`/v1/runs/${id}/fork`, {}));
  answers.push(JSON.stringify(await listEvents(id)));
  assert.deepEqual(await findCanary(harness, answers), []);
});
