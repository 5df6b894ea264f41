import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { LoopbackServer, SANDBOX_ID, TEST_KEY } from '../testing/loopback-server.ts';

test('a printed sandbox shows its record in short, and a nested one its class', async () => {
  await using server = await LoopbackServer.answering(200, {});
  const sandbox = server.sandbox();
  const printed = inspect(sandbox);
  assert.match(printed, /^Sandbox \{\n? *id: 'run0123456789abcdef0123',/u);
  assert.match(printed, /status: 'running'/u);
  assert.equal(inspect({ a: { b: { c: sandbox } } }), '{ a: { b: { c: [Sandbox] } } }');
  assert.equal((JSON.parse(JSON.stringify(sandbox)) as { id: string }).id, SANDBOX_ID);
});

test('nothing that is printed or serialised contains the API key', async () => {
  await using server = await LoopbackServer.answering(200, {});
  const client = server.client();
  for (const value of [
    client,
    client.sandboxes,
    client.snapshots,
    server.sandbox(),
    server.sandbox().files,
  ]) {
    const deep = inspect(value, { depth: 20, showHidden: true, getters: true });
    assert.ok(!deep.includes(TEST_KEY), deep);
    assert.ok(!JSON.stringify(value).includes(TEST_KEY));
  }
  assert.equal(inspect(client), `Coppice { baseUrl: '${server.url}' }`);
});
