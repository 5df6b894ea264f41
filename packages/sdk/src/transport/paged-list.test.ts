import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseNextQuery } from './paged-list.ts';
import { LoopbackServer, sendJson, wireRecord } from '../testing/loopback-server.ts';

/** Starts a service with three pages: run0 and run1, run2 and run3, run4. */
async function startPages(): Promise<LoopbackServer> {
  return LoopbackServer.start((request, response) => {
    const cursor = Number(new URL(request.url, 'http://h').searchParams.get('cursor') ?? 0);
    const body = [cursor, cursor + 1].filter((n) => n < 5).map((n) => wireRecord({ id: `run${n}` }));
    // The address is behind a proxy, and the client cannot reach it.
    const link = `<http://10.255.255.1/v1/runs?cursor=${cursor + 2}>; rel="next"`;
    sendJson(response, { body, headers: cursor < 4 ? { link } : {} });
  });
}

test('an awaited list has the items of all pages', async () => {
  await using server = await startPages();
  const sandboxes = await server.client().sandboxes.list();
  assert.deepEqual(
    sandboxes.map((sandbox) => sandbox.id),
    ['run0', 'run1', 'run2', 'run3', 'run4'],
  );
});

test('a loop fetches a page only when it reaches it, and none before it starts', async () => {
  await using server = await startPages();
  const list = server.client().sandboxes.list();
  assert.equal(server.seen.length, 0);
  for await (const sandbox of list) if (sandbox.id === 'run1') break;
  assert.equal(server.seen.length, 1);
});

test('pages can be read one by one', async () => {
  await using server = await startPages();
  const sizes: number[] = [];
  for await (const page of server.client().sandboxes.list().pages()) sizes.push(page.length);
  assert.deepEqual(sizes, [2, 2, 1]);
});

test('the limit counts items over all pages', async () => {
  await using server = await startPages();
  assert.equal((await server.client().sandboxes.list({ limit: 3 })).length, 3);
  assert.equal(server.seen.length, 2);
  assert.throws(() => server.client().sandboxes.list({ limit: 0 }), /limit/);
});

test('filters are sent under the names of the service', async () => {
  await using server = await LoopbackServer.answering(200, []);
  const { sandboxes } = server.client();
  await sandboxes.list({ status: 'running', labels: { job: 'a b', os: 'x:y' }, limit: 1000 });
  assert.equal(server.last.url, '/v1/runs?status=running&label=job%3Aa%20b&label=os%3Ax%3Ay&limit=100');
  await sandboxes.list({ status: ['failed', 'destroyed'] });
  assert.equal(server.last.url, '/v1/runs?status=failed&status=destroyed');
  await sandboxes.list({ team: 'data science' });
  assert.equal(server.last.url, '/v1/runs?team=data%20science');
  await sandboxes.list();
  assert.equal(server.last.url, '/v1/runs');
});

test('a list whose next page is the same page ends with an error', async () => {
  await using server = await LoopbackServer.answering(200, [wireRecord()], {
    link: '</v1/runs?cursor=1>; rel="next"',
  });
  await assert.rejects(Promise.resolve(server.client().sandboxes.list()), { code: 'invalid_response' });
  assert.equal(server.seen.length, 2);
});

test('an error rejects both the await and the loop', async () => {
  await using server = await LoopbackServer.answering(401, '');
  const list = server.client().sandboxes.list();
  await assert.rejects(Promise.resolve(list), { status: 401 });
  await assert.rejects(list.pages().next(), { status: 401 });
});

test('the next page is found in a Link header with other content', () => {
  assert.equal(parseNextQuery('</v1/runs?cursor=a%2C>; rel="next"'), '?cursor=a%2C');
  assert.equal(parseNextQuery('<http://h/a?p=0>; rel="prev", <http://h/a?p=2>; rel=next'), '?p=2');
  assert.equal(parseNextQuery('<?c=1>; title="x"; rel="next"; x=y'), '?c=1');
  for (const none of [
    null,
    '',
    '<http://h/a>; rel="next"',
    '</a?p=1>; rel="prev"',
    '</a?rel="next">; x="y"',
  ]) {
    assert.equal(parseNextQuery(none), undefined);
  }
});
