/** Names of sandboxes: one of a team has a name until it ends. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { startHarness, type Answer, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

const image = 'node:22-slim';
const create = (body: object, apiKey?: string): Promise<Answer> =>
  harness.call('POST', '/v1/runs', {
    body: { image, ...body },
    ...(apiKey === undefined ? {} : { apiKey }),
  });

function assertTaken({ status, body }: Answer, name: string): void {
  assert.deepEqual([status, body.error.code], [409, 'already_exists'], JSON.stringify(body));
  assert.ok(body.error.message.startsWith(`name: a sandbox of the team is called "${name}"`));
}

async function listNamed(name: string, query = ''): Promise<string[]> {
  const { body } = await harness.call('GET', `/v1/runs?name=${encodeURIComponent(name)}${query}`);
  return (body as { id: string }[]).map(({ id }) => id);
}

test('a name is in the record, in lists and in the first entry of the log', async () => {
  const name = 'ci “é” 😀';
  const { id } = await harness.create({ name });
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.name, name);
  assert.deepEqual(await listNamed(name), [id]);
  assert.deepEqual(await listNamed('ci'), []);
  const [entry] = (await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text()).split('\n');
  assert.equal(JSON.parse(entry ?? '').data.name, name);
  assert.equal((await harness.create()).name, null);
});

test('a name is taken until its sandbox ends, also while it is hibernated', async () => {
  const { id } = await harness.create({ name: 'taken' });
  const creates = harness.runner.creates.length;
  assertTaken(await create({ name: 'taken' }), 'taken');
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  assertTaken(await create({ name: 'taken' }), 'taken');
  assert.equal(harness.runner.creates.length, creates, 'no VM was made for a refused create');
  await harness.call('DELETE', `/v1/runs/${id}`);
  const next = await harness.create({ name: 'taken' });
  assert.deepEqual(await listNamed('taken'), [next.id]);
  assert.deepEqual(await listNamed('taken', '&status=running&status=destroyed'), [next.id, id]);
});

test('of creates with one name at once, one succeeds', async () => {
  const answers = await Promise.all(Array.from({ length: 4 }, () => create({ name: 'race' })));
  const statuses = answers.map(({ status }) => status).toSorted((a, b) => a - b);
  assert.deepEqual(statuses, [201, 409, 409, 409]);
  assert.equal((await listNamed('race')).length, 1);
});

test('a taken name is answered before a lack of capacity: a caller must learn that its sandbox exists', async (t) => {
  await harness.create({ name: 'full' });
  t.after(() => (harness.runner.onAdmission = () => undefined));
  harness.runner.onAdmission = () => {
    throw new AppError('capacity', 'the machine is full');
  };
  assertTaken(await create({ name: 'full' }), 'full');
  const { status, body } = await create({ name: 'another' });
  assert.deepEqual([status, body.error.code], [429, 'capacity']);
});

test('a create that fails leaves its name free', async (t) => {
  t.after(() => (harness.runner.onCreate = () => undefined));
  harness.runner.onCreate = () => {
    throw new Error('no VM');
  };
  assert.equal((await create({ name: 'free' })).status, 500);
  harness.runner.onCreate = () => undefined;
  assert.equal((await create({ name: 'free' })).status, 201);
});

test('another organization may use the same name, and does not learn of it', async () => {
  await harness.create({ name: 'common' });
  const apiKey = await harness.addOrganization();
  assert.equal((await create({ name: 'common' }, apiKey)).status, 201);
});

test('children have no name, restored sandboxes the one that is given', async () => {
  const { id } = await harness.create({ name: 'origin' });
  const [child] = (await harness.call('POST', `/v1/runs/${id}/fork`, { body: { count: 2 } })).body;
  assert.equal(child.name, null);
  const { id: snapshot_id } = (await harness.call('POST', `/v1/runs/${id}/snapshot`)).body;
  const restore = (body: object): Promise<Answer> =>
    harness.call('POST', '/v1/runs/restore', { body: { snapshot_id, ...body } });
  assert.equal((await restore({})).body.name, null);
  assertTaken(await restore({ name: 'origin' }), 'origin');
  assert.equal((await restore({ name: 'copy' })).body.name, 'copy');
});

const REFUSED: [name: unknown, message: RegExp][] = [
  ['', /^name: must not be empty/u],
  ['x'.repeat(65), /^name: must be at most 64 characters/u],
  ['a\u0007', /^name: must not contain control characters/u],
  [' a', /^name: must not begin or end with a space/u],
  [null, /^name: must be a string/u],
];

for (const [name, message] of REFUSED) {
  test(`the name ${JSON.stringify(name)} is refused`, async () => {
    const { status, body } = await create({ name });
    assert.equal(status, 400);
    assert.match(body.error.message, message);
  });
}

test('a name of 64 characters of four bytes is accepted', async () => {
  const name = '😀'.repeat(64);
  assert.equal((await harness.create({ name })).name, name);
});
