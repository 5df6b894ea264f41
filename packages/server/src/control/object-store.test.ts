/** Control with its objects on a real S3 server. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import type { ObjectStoreConfig, S3Location } from '../lib/objects/object-store-config.ts';
import { ObjectStoreError } from '../lib/objects/object-store-error.ts';
import { S3Objects } from '../lib/objects/s3/s3-objects.ts';
import { FaultProxy } from '../lib/objects/testing/fault-proxy.ts';
import { ObjectServer } from '../lib/objects/testing/object-server.ts';
import { prepareHarness, waitFor, type ControlHarness } from './testing/control-harness.ts';

let server: ObjectServer;
let harness: ControlHarness;

before(async () => {
  server = await ObjectServer.start();
});
after(() => server[Symbol.asyncDispose]());
afterEach(() => harness[Symbol.asyncDispose]());

function locate(changes: Partial<S3Location> = {}): ObjectStoreConfig & { kind: 's3' } {
  return { kind: 's3', ...server.locate(changes) };
}

async function startWith(objectStore: ObjectStoreConfig): Promise<void> {
  harness = await prepareHarness();
  await harness.runner.start();
  await harness.startControl({ objectStore });
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
}

/** Creates and ends a sandbox. Returns its log as the API sends it, without the heads that it adds. */
async function endSandbox(): Promise<{ id: string; text: string }> {
  const { body } = await harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
  const id = String(body.id);
  await harness.call('DELETE', `/v1/runs/${id}`);
  const text = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  return { id, text };
}

/** Waits until the log of the sandbox is in the bucket, and returns it. */
async function readStored(prefix: string, id: string): Promise<string> {
  using objects = S3Objects.open(server.locate({ prefix }));
  let text = '';
  await waitFor('the log to be stored', async () => {
    const stored = await Array.fromAsync(objects.list('audit/'));
    const key = stored.map((object) => object.key).find((name) => name.endsWith(`/${id}.ndjson`));
    if (key === undefined) return false;
    text = Buffer.concat(await Array.fromAsync(objects.get(key))).toString();
    return true;
  });
  return text;
}

test('the log of an ended sandbox is put into the bucket exactly as the API sends it', async () => {
  await startWith(locate({ prefix: 'first' }));
  const { id, text } = await endSandbox();
  assert.equal(await readStored('first', id), text);
  assert.ok(!harness.logLines.join('').includes('test-secret-key'));
});

test('control does not start on a server that refuses it or ignores create-only', async () => {
  await assert.rejects(startWith(locate({ bucket: 'missing' })), (error) => {
    assert.ok(error instanceof ObjectStoreError);
    return /the bucket does not exist \(NoSuchBucket\); create it/u.test(error.message);
  });
  await harness[Symbol.asyncDispose]();
  await using proxy = await FaultProxy.start(server.port);
  proxy.rule = ({ method, headers }) =>
    method === 'PUT' && headers['if-none-match'] !== undefined ? { kind: 'answer', status: 200 } : undefined;
  await assert.rejects(startWith(locate({ endpoint: proxy.endpoint })), /unfit \(create-only writes\)/u);
});

test('control starts while the server is away, and checks it before the first use', async () => {
  await using proxy = await FaultProxy.start(server.port);
  proxy.rule = () => ({ kind: 'answer', status: 503 });
  await startWith(locate({ endpoint: proxy.endpoint, prefix: 'away' }));
  assert.ok(harness.logLines.some((line) => line.includes('the object store is away')));
  proxy.rule = () => undefined;
  const { id, text } = await endSandbox();
  assert.equal(await readStored('away', id), text);
});

test('control stops in time while the server does not answer', async () => {
  await using proxy = await FaultProxy.start(server.port);
  await startWith(locate({ endpoint: proxy.endpoint, prefix: 'stop' }));
  proxy.rule = () => ({ kind: 'delay', durationMs: 60_000 });
  await endSandbox();
  const startedAt = performance.now();
  await harness.stopControl();
  assert.ok(performance.now() - startedAt < 15_000);
});
