import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorBody, LoopbackServer, SANDBOX_ID, sendJson, TEST_KEY } from '../testing/loopback-server.ts';

const RECORD = {
  id: 'prev01',
  port: 3000,
  created_at: '2026-11-21T06:30:00.000Z',
  expires_at: '2026-11-21T07:30:00.000Z',
};
const INFO = { id: 'prev01', port: 3000, createdAt: RECORD.created_at, expiresAt: RECORD.expires_at };
const BASE = `/v1/runs/${SANDBOX_ID}`;

test('url() makes no call, keeps path and query unchanged, and does not include the key', async () => {
  await using server = await LoopbackServer.answering(200, {});
  const sandbox = server.sandbox();
  const root = `${server.url}${BASE}/proxy/3000/`;
  assert.equal(sandbox.url(3000), root);
  assert.equal(sandbox.url(3000, '/'), root);
  assert.equal(sandbox.url(3000, 'a'), `${root}a`);
  assert.equal(sandbox.url(3000, '/a%2Fb//c?x=1&x=%20+é#f'), `${root}a%2Fb//c?x=1&x=%20+é#f`);
  assert.equal(sandbox.url(3000, '//a'), `${root}/a`);
  assert.equal(sandbox.url(1).includes(TEST_KEY), false);
  assert.deepEqual(server.seen, []);
});

test('a port is an integer from 1 to 65535', async () => {
  await using server = await LoopbackServer.answering(201, {});
  for (const port of [0, 65_536, 80.5, NaN, '80' as unknown as number, '../1' as unknown as number]) {
    assert.throws(() => server.sandbox().url(port), TypeError);
    await assert.rejects(server.sandbox().preview(port), TypeError);
  }
  assert.deepEqual(server.seen, []);
});

test('a preview is created with its time to live and includes its link', async () => {
  const url = 'http://3000-run0.localhost:8080/.well-known/coppice/preview?token=t';
  await using server = await LoopbackServer.answering(201, { ...RECORD, url });
  const preview = await server.sandbox().preview(3000, { expiresIn: 600 });
  assert.deepEqual(preview, { ...INFO, url });
  assert.equal(`${server.last.method} ${server.last.url}`, `POST ${BASE}/ports/3000/preview`);
  assert.deepEqual(server.lastJson, { expires_in: 600 });
  await server.sandbox().preview(3000);
  assert.deepEqual(server.lastJson, {});
  await assert.rejects(server.sandbox().preview(3000, { expires: 1 } as object), /"expires"/);
});

test('previews are listed without links and revoked by id', async () => {
  await using server = await LoopbackServer.start((request, response) => {
    if (request.method === 'GET') sendJson(response, { body: [RECORD] });
    else if (request.url.endsWith('/prev01')) response.writeHead(204).end();
    else sendJson(response, { status: 404, body: errorBody('not_found', 'there is no such preview') });
  });
  assert.deepEqual(await server.sandbox().previews(), [INFO]);
  assert.equal(server.last.url, `${BASE}/previews`);
  await server.sandbox().revokePreview('prev01');
  assert.equal(`${server.last.method} ${server.last.url}`, `DELETE ${BASE}/previews/prev01`);
  await assert.rejects(server.sandbox().revokePreview('prev02'), { code: 'not_found' });
  await assert.rejects(server.sandbox().revokePreview('..'), TypeError);
});

test('a ticket is created with its time to live, and retried when the service asks for a wait', async () => {
  let calls = 0;
  await using server = await LoopbackServer.start((_, response) => {
    calls += 1;
    const wait = { status: 503, body: errorBody('unavailable', 'starting'), headers: { 'retry-after': '0' } };
    const body = { ticket: 't1', expires_at: RECORD.expires_at };
    sendJson(response, calls === 1 ? wait : { status: 201, body });
  });
  const ticket = await server.sandbox().createTicket({ expiresIn: 30 });
  assert.deepEqual(ticket, { ticket: 't1', expiresAt: RECORD.expires_at });
  assert.equal(`${server.last.method} ${server.last.url}`, `POST ${BASE}/tickets`);
  assert.deepEqual(server.lastJson, { expires_in: 30 });
  assert.equal(calls, 2);
});
