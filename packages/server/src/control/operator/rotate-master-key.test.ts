import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { sql } from 'kysely';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { verifyLog } from '../testing/verify-log.ts';
import { addMasterKey, MasterKeyError, openMasterKeys } from '../secrets/master-key.ts';
import { rotateMasterKey, type Rotated } from './rotate-master-key.ts';
import { SEALED_COLUMNS } from './sealed-values.ts';
import { MASTER_KEY_BYTES, SecretBox } from '../secrets/secret-box.ts';
import { ensureAuthority } from '../authority/authority.ts';

const keyPath = (harness: ControlHarness): string => join(harness.directory, 'data', 'master.key');
const rotate = (harness: ControlHarness): Promise<Rotated> => rotateMasterKey(harness.config, harness.log);

/** Creates one value for each sealed column, and a preview. Returns the id of the sandbox, which is hibernated. */
async function fill(harness: ControlHarness): Promise<string> {
  const login = { username: 'u', password: 'of-a-registry' };
  await harness.call('PUT', '/v1/registries/registry.test', { body: login });
  await harness.call('PUT', '/v1/secrets/kept', { body: { value: 'sk-named' } });
  const credentials = { anthropic: { secret: 'kept' }, openai: 'sk-kept' };
  const { id } = await harness.create({ credentials, env: { KEPT: 'of-a-sandbox' } });
  assert.equal((await harness.call('POST', `/v1/runs/${id}/snapshot`)).status, 201);
  assert.equal((await harness.call('POST', `/v1/runs/${id}/ports/80/preview`, { body: {} })).status, 201);
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  await using db = harness.openDatabase();
  await ensureAuthority(db, openBox(harness));
  return id;
}

function openBox(harness: ControlHarness): SecretBox {
  const { current, older } = openMasterKeys(keyPath(harness));
  return new SecretBox(current, older);
}

/** Returns the variables that a command in the sandbox gets. */
async function readEnv(harness: ControlHarness, id: string): Promise<unknown> {
  let env: unknown;
  harness.runner.onExec = ({ head, exit }) => {
    ({ env } = head);
    exit(0);
  };
  await harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } });
  return env;
}

async function assertOpens(harness: ControlHarness, id: string): Promise<void> {
  await harness.startControl();
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  await harness.create({ image: 'registry.test/some:1' });
  assert.equal(harness.runner.creates.at(-1)?.access?.credentials?.password, 'of-a-registry');
  assert.equal((await harness.call('POST', `/v1/runs/${id}/resume`)).status, 200);
  const grants = harness.runner.egress.get(id)?.grants.map(({ secret }) => secret);
  assert.deepEqual(grants, ['sk-named', 'sk-kept']);
  const [snapshot] = (await harness.call('GET', '/v1/snapshots')).body;
  const restored = await harness.call('POST', '/v1/runs/restore', { body: { snapshot_id: snapshot.id } });
  for (const one of [id, restored.body.id])
    assert.deepEqual(await readEnv(harness, one), { KEPT: 'of-a-sandbox' });
  assert.ok((await verifyLog(harness, id)) > 2);
  await using db = harness.openDatabase();
  await ensureAuthority(db, openBox(harness));
}

test('all sealed values open with the new key alone, and preview links end', async () => {
  await using harness = await startHarness();
  const id = await fill(harness);
  await harness.stopControl();
  const before = openMasterKeys(keyPath(harness)).current;
  const { values, unreadable, previews, isContinued } = await rotate(harness);
  assert.deepEqual([values, unreadable, previews, isContinued], [8, 0, 1, false]);
  const { current, older } = openMasterKeys(keyPath(harness));
  assert.ok(!current.equals(before));
  assert.deepEqual(older, []);
  await assertOpens(harness, id);
  assert.deepEqual((await harness.call('GET', `/v1/runs/${id}/previews`)).body, []);
});

test('after a kill once the key is added, the service starts, and the next rotation finishes the first', async () => {
  await using harness = await startHarness();
  const id = await fill(harness);
  await harness.stopControl();
  const added = addMasterKey(keyPath(harness)).current;
  await assertOpens(harness, id);
  await harness.stopControl();
  const { isContinued } = await rotate(harness);
  assert.equal(isContinued, true);
  assert.deepEqual(openMasterKeys(keyPath(harness)), { current: added, older: [] });
  await harness.startControl();
  await harness.create({ image: 'registry.test/some:1' });
  assert.equal(harness.runner.creates.at(-1)?.access?.credentials?.password, 'of-a-registry');
});

test('after a kill before the old key is removed, nothing is left to seal again', async () => {
  await using harness = await startHarness();
  const id = await fill(harness);
  await harness.stopControl();
  const before = readFileSync(keyPath(harness));
  await rotate(harness);
  writeFileSync(keyPath(harness), Buffer.concat([readFileSync(keyPath(harness)), before]));
  assert.deepEqual(await rotate(harness), { values: 0, unreadable: 0, previews: 0, isContinued: true });
  assert.equal(readFileSync(keyPath(harness)).length, MASTER_KEY_BYTES);
  await assertOpens(harness, id);
});

test('a rotation is refused while the service runs, and where there is no key', async () => {
  await using harness = await startHarness({ databasePatienceMs: 100 });
  const before = readFileSync(keyPath(harness));
  await assert.rejects(rotate(harness), /another control works in/u);
  assert.deepEqual(readFileSync(keyPath(harness)), before);
  const elsewhere = { ...harness.config, dataDir: join(harness.directory, 'none') };
  await assert.rejects(rotateMasterKey(elsewhere, harness.log), MasterKeyError);
});

test('values that no known key opens are counted and left unchanged', async () => {
  await using harness = await startHarness();
  await fill(harness);
  await harness.stopControl();
  writeFileSync(keyPath(harness), Buffer.alloc(MASTER_KEY_BYTES, 9));
  const { values, unreadable } = await rotate(harness);
  assert.deepEqual([values, unreadable], [0, 8]);
});

test('the list of sealed columns is complete', async () => {
  await using harness = await startHarness();
  await using db = harness.openDatabase();
  const { rows } = await sql<{ name: string }>`
    SELECT table_name || '.' || column_name AS name FROM information_schema.columns
    WHERE table_schema = current_schema() AND column_name LIKE 'sealed%' ORDER BY name`.execute(db);
  const listed = SEALED_COLUMNS.map(({ table, column }) => `${table}.${column}`).toSorted();
  assert.deepEqual(
    rows.map(({ name }) => name),
    listed,
  );
});
