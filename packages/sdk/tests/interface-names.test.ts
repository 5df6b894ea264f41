/** The client has every name of the interface specification (the client forms in its sections 2, 3 and 4). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  API_KEY,
  startHarness,
  type ControlHarness,
} from '../../server/src/control/testing/control-harness.ts';
import { Coppice, type CreateOptions } from '../src/index.ts';
import { answerLikeGuests } from './fixtures/simple-guest.ts';

let harness: ControlHarness;
let client: Coppice;
before(async () => {
  harness = await startHarness();
  answerLikeGuests(harness.runner);
  client = new Coppice({ apiKey: API_KEY, baseUrl: harness.address });
});
after(() => harness?.[Symbol.asyncDispose]());

function assertFields(record: object, fields: string[]): void {
  for (const field of fields) {
    const value = (record as Record<string, unknown>)[field];
    assert.ok(value !== undefined && value !== null, `${field} is ${String(value)}`);
  }
}

test('the options of a create have their names', async () => {
  await client.createDisk({ name: 'source', sizeGb: 1 });
  await client.snapshotDisk('source', { name: 'good' });
  const options: Required<
    Pick<
      CreateOptions,
      | 'image'
      | 'vcpus'
      | 'memMiB'
      | 'diskMiB'
      | 'timeout'
      | 'network'
      | 'disk'
      | 'forkFromDisk'
      | 'diskSnapshot'
    >
  > = {
    image: 'python:3.12-slim',
    vcpus: 2,
    memMiB: 512,
    diskMiB: 128,
    timeout: 60,
    network: { allow: ['example.com'], deny: ['0.0.0.0/0'] },
    disk: 'copy',
    forkFromDisk: 'source',
    diskSnapshot: 'good',
  };
  const { record } = await client.sandboxes.create(options);
  assert.deepEqual(
    [record.vcpus, record.memMiB, record.diskMiB, record.timeout, record.disk?.name],
    [2, 512, 128, 60, 'copy'],
  );
  await client.sandboxes.create({ networkProfile: 'locked-down', credentials: { openai: 'a' } });
  const key = 'a';
  const endpoints = [{ methods: ['GET'], paths: ['/repos/a/*'] }];
  await client.sandboxes.create({ credentialsV2: { github: { key, endpoints } } });
});

test('records have their fields, and sandboxes their methods', async () => {
  const sandbox = await client.sandboxes.create();
  assertFields(await sandbox.info(), [
    'id',
    'status',
    'image',
    'vcpus',
    'memMiB',
    'diskMiB',
    'createMs',
    'createdAt',
  ]);
  assert.match(sandbox.id, /^run[0-9a-f]+$/u);
  assertFields(await sandbox.exec('true', { timeout: 30 }), ['exitCode', 'stdout', 'stderr']);
  assert.equal(sandbox.url(8080, '/a?b=c'), `${client.baseUrl}/v1/runs/${sandbox.id}/proxy/8080/a?b=c`);
  await sandbox.setTimeout(0);
  await sandbox.upload('/workspace/a', 'text');
  assert.equal(await sandbox.download('/workspace/a'), 'text');
  assert.ok((await sandbox.listFiles('/workspace')).length > 0);
  const snapshot = await sandbox.snapshot();
  assertFields(snapshot, ['id', 'runId', 'sizeBytes', 'createdAt']);
  assert.equal((await client.snapshots.list()).length, 1);
  assert.equal((await sandbox.fork()).length, 1);
  assert.equal((await sandbox.hibernate()).status, 'hibernated');
  assert.equal((await sandbox.resume()).status, 'running');
  assert.equal((await client.sandboxes.restore(snapshot.id)).status, 'running');
  await client.snapshots.delete(snapshot.id);
  for await (const entry of sandbox.audit()) assertFields(entry, ['seq', 'ts', 'event', 'data', 'hmac']);
  assertFields(await sandbox.destroy(), ['status', 'cpuMs', 'memPeakBytes', 'uptimeMs', 'costCents']);
  await assert.rejects(sandbox.destroy(), { code: 'invalid_state' });
  assert.equal(await client.sandboxes.get('run00000000000000000000'), null);
});

test('usage, history, profiles and images have their names', async () => {
  const sandbox = await client.sandboxes.create();
  await sandbox.destroy();
  assertFields(await client.usage(), [
    'activeSandboxes',
    'historySandboxes',
    'activeCostCents',
    'historyCostCents',
    'totalCostCents',
    'cpuSeconds',
    'memSeconds',
    'asOf',
  ]);
  const [newest] = await client.history({ limit: 1 });
  assert.equal(newest?.id, sandbox.id);
  assertFields(newest, [
    'image',
    'vcpus',
    'memMiB',
    'createMs',
    'createdAt',
    'destroyedAt',
    'uptimeMs',
    'cpuMs',
    'memPeakBytes',
    'costCents',
  ]);
  for (const profile of await client.networkProfiles()) assertFields(profile, ['name', 'allow', 'deny']);
  await client.images.build('python:3.12-slim');
  assert.ok((await client.images.list()).length >= 0);
});

test('disks have their methods', async () => {
  assertFields(await client.createDisk({ name: 'data', sizeGb: 1 }), ['name', 'sizeGb']);
  assert.ok((await client.listDisks()).some(({ name }) => name === 'data'));
  assertFields(await client.snapshotDisk('data', { name: 'good' }), ['name']);
  await client.forkDisk('data', { snapshot: 'good', name: 'data-2' });
  await assert.rejects(client.deleteDisk('data'), { code: 'disk_has_forks' });
  await client.deleteDisk('data-2');
  await client.deleteDisk('data');
});

test('the key comes from the option or from SANDBOX_API_KEY', (t) => {
  const { SANDBOX_API_KEY: saved } = process.env;
  t.after(() => {
    if (saved === undefined) delete process.env['SANDBOX_API_KEY'];
    else process.env['SANDBOX_API_KEY'] = saved;
  });
  delete process.env['SANDBOX_API_KEY'];
  assert.throws(() => new Coppice(), /SANDBOX_API_KEY/u);
  process.env['SANDBOX_API_KEY'] = API_KEY;
  assert.equal(new Coppice().baseUrl, 'http://127.0.0.1:8080');
});
