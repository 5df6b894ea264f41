import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CoppiceError } from '../transport/errors.ts';
import { ForkError } from './forks.ts';
import { errorBody, LoopbackServer, SANDBOX_ID, sendJson, wireRecord } from '../testing/loopback-server.ts';

function child(nth: number): { id: string } & Record<string, unknown> {
  return wireRecord({ id: `run${nth}`, parent_id: SANDBOX_ID });
}

test('a fork creates one child, which is another sandbox', async () => {
  await using server = await LoopbackServer.answering(201, [child(1)]);
  const [forked] = await server.sandbox().fork();
  assert.equal(`${server.last.method} ${server.last.url}`, `POST /v1/runs/${SANDBOX_ID}/fork`);
  assert.deepEqual(server.lastJson, { count: 1 });
  assert.deepEqual([forked.id, forked.record.parentId], ['run1', SANDBOX_ID]);
  await assert.rejects(forked.info());
  assert.equal(server.last.url, '/v1/runs/run1');
});

test('children are returned in order', async () => {
  await using server = await LoopbackServer.answering(201, [3, 1, 2].map(child));
  const children = await server.sandbox().fork(3);
  assert.deepEqual(
    children.map(({ id }) => id),
    ['run3', 'run1', 'run2'],
  );
  assert.deepEqual(server.lastJson, { count: 3 });
});

test('each fork has one idempotency key, which all its attempts share', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    const isFirst = server.seen.length === 1;
    const busy = { status: 503, headers: { 'retry-after': '0' }, body: errorBody('unavailable', 'x') };
    sendJson(response, isFirst ? busy : { status: 201, body: [child(1)] });
  });
  const sandbox = server.sandbox();
  await sandbox.fork();
  await sandbox.fork();
  await sandbox.fork(1, { idempotencyKey: 'mine' });
  const [first, again, second, mine] = server.seen.map((request) => request.headers['idempotency-key']);
  assert.match(String(first), /^[0-9a-f]{32}$/);
  assert.equal(again, first);
  assert.notEqual(second, first);
  assert.equal(mine, 'mine');
});

test('when some children fail, the error has the running children and the errors of the others', async () => {
  const full = errorBody('capacity', 'no room');
  const deaf = errorBody('guest_unreachable', 'silent');
  await using server = await LoopbackServer.answering(207, [child(1), full, child(3), deaf]);
  await assert.rejects(server.sandbox().fork(4), (error) => {
    assert.ok(error instanceof ForkError && error instanceof CoppiceError);
    assert.equal(error.name, 'ForkError');
    assert.deepEqual(
      error.children.map(({ id }) => id),
      ['run1', 'run3'],
    );
    assert.deepEqual(
      error.errors.map(({ status, code, detail, requestId }) => [status, code, detail, requestId]),
      [
        [207, 'capacity', 'no room', 'req0a1b'],
        [207, 'guest_unreachable', 'silent', 'req0a1b'],
      ],
    );
    assert.deepEqual([error.status, error.code, error.detail], [207, 'capacity', 'no room']);
    assert.match(error.message, /^2 of 4 children could not be made: HTTP 207 .*child 2 of 4: .*no room/);
    return true;
  });
});

test('when all children fail, the error is not a ForkError', async () => {
  await using server = await LoopbackServer.answering(409, errorBody('invalid_state', 'it is hibernated'));
  await assert.rejects(server.sandbox().fork(2), (error) => {
    return error instanceof CoppiceError && !(error instanceof ForkError) && error.code === 'invalid_state';
  });
});

test('an answer with too few or invalid children is an error', async () => {
  for (const body of [[], [child(1)], [child(1), {}], [child(1), null], child(1)]) {
    await using server = await LoopbackServer.answering(201, body);
    await assert.rejects(server.sandbox().fork(2), { code: 'invalid_response' }, JSON.stringify(body));
  }
});

test('a fork is aborted by its signal, and a count of NaN or infinity is refused', async () => {
  await using server = await LoopbackServer.start(() => undefined);
  const controller = new AbortController();
  const reason = new Error('enough');
  const fork = server.sandbox().fork(2, { signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(fork, reason);
  await assert.rejects(server.sandbox().fork(Number.NaN), /count/);
});

test('the tree has fields in camelCase', async () => {
  const root = { id: 'run1', status: 'destroyed', created_at: 'then', ended_at: 'later' };
  const nodes = [
    { ...root, parent_id: null },
    { id: SANDBOX_ID, status: 'running', parent_id: 'run1', created_at: 'since', ended_at: null },
  ];
  await using server = await LoopbackServer.answering(200, { root_id: 'run1', nodes, truncated: false });
  assert.deepEqual(await server.sandbox().tree(), {
    rootId: 'run1',
    nodes: [
      { id: 'run1', status: 'destroyed', parentId: null, createdAt: 'then', endedAt: 'later' },
      { id: SANDBOX_ID, status: 'running', parentId: 'run1', createdAt: 'since', endedAt: null },
    ],
    truncated: false,
  });
  assert.equal(`${server.last.method} ${server.last.url}`, `GET /v1/runs/${SANDBOX_ID}/tree`);
});
