/** People and their API keys at the real service: a key's connections end with the key. */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { WebSocket } from 'ws';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import type { Api } from '../fixtures/api/api.ts';
import { Person } from '../fixtures/accounts/person.ts';
import { shared } from '../fixtures/service/shared.ts';

const ENDS_WITHIN_MS = 5_000;
const TIMEOUT_MS = 30_000;
const OVERLAP_S = 3;

describe('accounts', () => {
  let api: Api;
  let owner: Person;
  const makeKey = (name: string) => owner.ask('POST', `${owner.team}/keys`, { name });
  const list = async (key: string) => (await api.call('GET', '/v1/runs', { key })).status;

  before(async () => {
    ({ api } = await shared());
    owner = await Person.operator(api.service);
  });

  it('a revoked key fails at once, and its streams, sockets and connections to ports end', async () => {
    const { id: keyId, key = '' } = await makeKey('revoked');
    const create = { key, body: { image: BASE_IMAGE } };
    const { id } = (await api.call('POST', '/v1/runs', create)).body;
    const body = { command: 'echo begun; sleep 300' };
    const response = await api.fetch('POST', `/v1/runs/${String(id)}/exec/stream`, { key, body });
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    assert.match((await reader.read()).value ?? '', /begun/u);
    const url = `${api.service.address.replace('http', 'ws')}/v1/runs/${String(id)}/terminal`;
    const terminal = new WebSocket(url, { headers: { authorization: `Bearer ${key}` } });
    const closed = Promise.withResolvers<number>();
    terminal.on('close', closed.resolve).on('error', closed.reject);
    await new Promise((resolve) => terminal.once('message', resolve));
    await owner.ask('DELETE', `${owner.team}/keys/${keyId}`);
    const revokedAt = performance.now();
    assert.equal(await list(key), 401);
    let text = '';
    for (let read = await reader.read(); !read.done; read = await reader.read()) text += read.value;
    assert.match(text, /"code":"unauthorized"/u);
    await closed.promise;
    assert.ok(performance.now() - revokedAt < ENDS_WITHIN_MS);
    const { stdout } = await api.exec(String(id), 'pgrep -f "sleep 300" | wc -l');
    assert.ok(Number(stdout) <= 1, 'the command of the stream still runs');
    await api.destroy(String(id));
  });

  it('after a rotation both keys are valid until the overlap ends', async () => {
    const { id: keyId, key: old = '' } = await makeKey('rotated');
    const path = `${owner.team}/keys/${keyId}/rotate`;
    const { key = '' } = await owner.ask('POST', path, { overlap_seconds: OVERLAP_S });
    assert.deepEqual([await list(old), await list(key)], [200, 200]);
    await pollUntil({ step: 'the end of the overlap', timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () =>
      (await list(old)) === 401 ? true : undefined,
    );
    assert.equal(await list(key), 200);
  });

  it('a session survives the death of the process that created it', async () => {
    await api.service.killRole('control');
    assert.equal((await owner.call('GET', '/account/me')).status, 200);
  });
});
