import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { CoppiceError } from '../transport/errors.ts';
import {
  errorBody,
  LoopbackServer,
  SANDBOX_ID,
  sendJson,
  wireRecord,
  type SeenRequest,
} from '../testing/loopback-server.ts';

const NAMED = { name: 'ci' };
const TAKEN = {
  status: 409,
  body: errorBody('already_exists', 'name: a sandbox of the team is called "ci"'),
};

type Answer = { status?: number; body: unknown };

/** Starts a service that gives the answers of each endpoint in turn, and the last one from then on. */
async function startScript(script: Record<string, Answer[]>): Promise<LoopbackServer> {
  const counts = new Map<string, number>();
  return LoopbackServer.start(({ method, url }: SeenRequest, response: ServerResponse) => {
    const key = `${method} ${url.split('?')[0]}`;
    const answers = script[key] ?? [];
    const index = counts.get(key) ?? 0;
    counts.set(key, index + 1);
    sendJson(response, answers[Math.min(index, answers.length - 1)] ?? { status: 500, body: {} });
  });
}

function requestsOf(server: LoopbackServer): string[] {
  return server.seen.map(({ method, url }) => `${method} ${url}`);
}

const RUN = `/v1/runs/${SANDBOX_ID}`;

test('getOrCreate creates the sandbox with its options when the name is free', async () => {
  await using server = await startScript({ 'POST /v1/runs': [{ status: 201, body: wireRecord(NAMED) }] });
  const sandbox = await server.client().sandboxes.getOrCreate({ name: 'ci', memMiB: 512 });
  assert.equal(sandbox.id, SANDBOX_ID);
  assert.deepEqual(server.lastJson, { image: 'node:22-slim', name: 'ci', mem_mib: 512 });
  assert.equal(server.seen.length, 1);
});

test('getOrCreate returns the running sandbox that has the name, and changes nothing', async () => {
  await using server = await startScript({
    'POST /v1/runs': [TAKEN],
    'GET /v1/runs': [{ body: [wireRecord(NAMED)] }],
  });
  const sandbox = await server.client().sandboxes.getOrCreate({ name: 'ci', team: 'web' });
  assert.deepEqual([sandbox.id, sandbox.name, sandbox.status], [SANDBOX_ID, 'ci', 'running']);
  assert.deepEqual(requestsOf(server), ['POST /v1/runs', 'GET /v1/runs?name=ci&team=web&limit=2']);
});

test('getOrCreate resumes a hibernated sandbox, also one that is being hibernated', async () => {
  await using server = await startScript({
    'POST /v1/runs': [TAKEN],
    'GET /v1/runs': [{ body: [wireRecord({ ...NAMED, operation: 'hibernating' })] }],
    [`GET ${RUN}`]: [{ body: wireRecord({ ...NAMED, status: 'hibernated' }) }],
    [`POST ${RUN}/resume`]: [{ body: wireRecord(NAMED) }],
  });
  const sandbox = await server.client().sandboxes.getOrCreate(NAMED);
  assert.equal(sandbox.status, 'running');
  assert.equal(requestsOf(server).at(-1), `POST ${RUN}/resume`);
});

test('getOrCreate waits for the sandbox when another caller resumes it first', async () => {
  await using server = await startScript({
    'POST /v1/runs': [TAKEN],
    'GET /v1/runs': [{ body: [wireRecord({ ...NAMED, status: 'hibernated' })] }],
    [`POST ${RUN}/resume`]: [{ status: 409, body: errorBody('invalid_state', 'it is being resumed') }],
    [`GET ${RUN}`]: [
      { body: wireRecord({ ...NAMED, status: 'hibernated', operation: 'resuming' }) },
      { body: wireRecord(NAMED) },
    ],
  });
  assert.equal((await server.client().sandboxes.getOrCreate(NAMED)).status, 'running');
});

test('getOrCreate creates the sandbox when the one with the name ends meanwhile', async () => {
  await using server = await startScript({
    'POST /v1/runs': [TAKEN, TAKEN, { status: 201, body: wireRecord({ ...NAMED, id: 'run2' }) }],
    'GET /v1/runs': [{ body: [wireRecord({ ...NAMED, status: 'creating' })] }, { body: [] }],
    [`GET ${RUN}`]: [{ body: wireRecord({ ...NAMED, status: 'failed' }) }],
  });
  assert.equal((await server.client().sandboxes.getOrCreate(NAMED)).id, 'run2');
});

test('getOrCreate gives up on a name that no sandbox has, with the error of the create', async () => {
  await using server = await startScript({
    'POST /v1/runs': [
      { status: 409, body: errorBody('already_exists', 'disk: there is a disk "a" already') },
    ],
    'GET /v1/runs': [{ body: [] }],
  });
  await assert.rejects(server.client().sandboxes.getOrCreate(NAMED), {
    code: 'already_exists',
    detail: 'disk: there is a disk "a" already',
  });
});

test('getOrCreate does not choose between sandboxes of several teams', async () => {
  await using server = await startScript({
    'POST /v1/runs': [TAKEN],
    'GET /v1/runs': [{ body: [wireRecord(NAMED), wireRecord({ ...NAMED, id: 'run2' })] }],
  });
  await assert.rejects(server.client().sandboxes.getOrCreate(NAMED), (error) => {
    return (
      error instanceof CoppiceError && error.code === 'ambiguous_name' && /pass the team/u.test(error.message)
    );
  });
});

test('getOrCreate rejects with other errors of the create, and of the resume', async () => {
  await using full = await startScript({
    'POST /v1/runs': [{ status: 402, body: errorBody('credit_exhausted', 'no credit') }],
  });
  await assert.rejects(full.client().sandboxes.getOrCreate(NAMED), { code: 'credit_exhausted' });
  await using changed = await startScript({
    'POST /v1/runs': [TAKEN],
    'GET /v1/runs': [{ body: [wireRecord({ ...NAMED, status: 'hibernated' })] }],
    [`POST ${RUN}/resume`]: [{ status: 409, body: errorBody('disk_changed', 'the disk has changed') }],
  });
  await assert.rejects(changed.client().sandboxes.getOrCreate(NAMED), { code: 'disk_changed' });
});

test('getOrCreate stops at once when it is aborted while it waits', async () => {
  await using server = await startScript({
    'POST /v1/runs': [TAKEN],
    'GET /v1/runs': [{ body: [wireRecord({ ...NAMED, status: 'creating' })] }],
    [`GET ${RUN}`]: [{ body: wireRecord({ ...NAMED, status: 'creating' }) }],
  });
  const controller = new AbortController();
  const reason = new Error('changed my mind');
  const call = server.client().sandboxes.getOrCreate(NAMED, { signal: controller.signal });
  const rejected = assert.rejects(call, (error) => error === reason);
  const isPolling = (): boolean => requestsOf(server).includes(`GET ${RUN}`);
  while (!isPolling()) await new Promise((resolve) => setTimeout(resolve, 5));
  controller.abort(reason);
  await rejected;
});

test('getOrCreate without a name and a misspelt option are refused before a request is sent', async () => {
  await using server = await startScript({});
  await assert.rejects(server.client().sandboxes.getOrCreate({} as { name: string }), /name is required/u);
  const misspelt = { name: 'ci', memMib: 1 } as { name: string };
  await assert.rejects(server.client().sandboxes.getOrCreate(misspelt), /memMib/u);
  assert.equal(server.seen.length, 0);
});
