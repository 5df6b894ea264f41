import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Client, InMemoryTransport } from '@modelcontextprotocol/client';
import { Coppice, type FetchFunction } from '../../sdk/src/index.ts';
import { CreatedSandboxes } from './created-sandboxes.ts';
import { buildMcpServer } from './mcp-server.ts';
import { RECORD } from './testing/sandbox-record.ts';

const { id: ID } = RECORD;
const ERROR_IDS = ['sandbox-1', '', '../etc', `run${'0'.repeat(80)}`];

/** A client of a server whose service answers as `answer` says, by method and path. */
async function connect(answer: (call: string, init: RequestInit) => unknown) {
  const calls: string[] = [];
  const serve: FetchFunction = async (url, init) => {
    const call = `${init.method} ${new URL(url).pathname}`;
    calls.push(call);
    const body = await answer(call, init);
    return body instanceof Response ? body : Response.json(body);
  };
  const service = new Coppice({
    apiKey: 'k',
    baseUrl: 'http://127.0.0.1:9',
    fetch: serve,
    maxRetries: 0,
  });
  const created = new CreatedSandboxes(service);
  const server = buildMcpServer({ client: service, created: (ids) => created.add(ids) }, '1.2.3');
  const client = new Client({ name: 'test', version: '1' });
  const [one, other] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(other), client.connect(one)]);
  const call = async (name: string, args: Record<string, unknown>, signal?: AbortSignal) => {
    const options = signal === undefined ? {} : { signal };
    const { isError = false, content } = await client.callTool({ name, arguments: args }, options);
    const [first] = content;
    return { isError, text: first?.type === 'text' ? first.text : '' };
  };
  return { client, call, calls, created };
}

const failure = (status: number, code: string) =>
  Response.json({ error: { code, message: `it is ${code}`, request_id: 'req1' } }, { status });

test('every tool has a title, a description, strict input, output and annotations', async () => {
  const { client } = await connect(() => ({}));
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map(({ name }) => name).sort(), [
    'checkpoint',
    'create_sandbox',
    'destroy_sandbox',
    'exec',
    'fork',
    'hibernate',
    'list_files',
    'list_sandboxes',
    'read_file',
    'restore',
    'resume',
    'url',
    'write_file',
  ]);
  const ownTarget = new Set(['create_sandbox', 'restore', 'list_sandboxes']);
  for (const { name, title, description, inputSchema, outputSchema, annotations } of tools) {
    assert.ok(title !== undefined && description !== undefined && outputSchema !== undefined, name);
    assert.equal(inputSchema['additionalProperties'], false, name);
    assert.equal(inputSchema.required?.includes('sandboxId') === true, !ownTarget.has(name), name);
    assert.equal(typeof annotations?.readOnlyHint, 'boolean', name);
    assert.equal(typeof annotations?.openWorldHint, 'boolean', name);
    if (annotations?.readOnlyHint === true) continue;
    assert.equal(typeof annotations?.destructiveHint, 'boolean', name);
    assert.equal(typeof annotations?.idempotentHint, 'boolean', name);
  }
  assert.equal(client.getServerVersion()?.version, '1.2.3');
  assert.match(client.getInstructions() ?? '', /create_sandbox/u);
});

test('an id that no sandbox can have never reaches the service', async () => {
  const { call, calls } = await connect(() => failure(500, 'internal'));
  for (const sandboxId of ERROR_IDS) {
    const { isError, text } = await call('exec', { sandboxId, command: 'id' });
    assert.ok(isError && /sandboxId: .*create_sandbox.*list_sandboxes/u.test(text), text);
  }
  assert.deepEqual(calls, []);
});

describe('an error of the service', () => {
  const cases: readonly [status: number, code: string, next: RegExp][] = [
    [404, 'not_found', /^There is no sandbox run.*create_sandbox.*list_sandboxes/u],
    [401, 'unauthorized', /^unauthorized: it is unauthorized\. \(request req1\)\n.*valid key/u],
    [403, 'forbidden', /does not help/u],
    [402, 'credit_exhausted', /add credit/u],
    [429, 'capacity', /Destroy or hibernate/u],
    [503, 'unavailable', /Try again/u],
    [418, 'new_code', /^new_code: it is new_code\. \(request req1\)$/u],
  ];
  for (const [status, code, expected] of cases)
    test(`${code} is a result with the next step`, async () => {
      const { call } = await connect(() => failure(status, code));
      const { isError, text } = await call('hibernate', { sandboxId: ID });
      assert.ok(isError);
      assert.match(text, expected);
    });

  test('an unreachable service is a result, too', async () => {
    const { call } = await connect(() => {
      throw Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
    });
    const { isError, text } = await call('list_sandboxes', {});
    assert.ok(isError && /^connection_refused: .*\n.*Try again/u.test(text), text);
  });
});

test('a sandbox whose create is cancelled is destroyed as soon as it exists', async () => {
  const asked = Promise.withResolvers<void>();
  const record = Promise.withResolvers<unknown>();
  const destroyed = Promise.withResolvers<void>();
  const { call, created, calls } = await connect((request) => {
    if (request.startsWith('DELETE')) {
      destroyed.resolve();
      return { status: 'destroyed', cpu_ms: 1, mem_peak_bytes: 1, uptime_ms: 1, cost_cents: 0 };
    }
    asked.resolve();
    return record.promise;
  });
  const controller = new AbortController();
  const rejected = assert.rejects(call('create_sandbox', {}, controller.signal));
  await asked.promise;
  controller.abort(new Error('enough'));
  await rejected;
  record.resolve(RECORD);
  await destroyed.promise;
  assert.deepEqual(calls, ['POST /v1/runs', `DELETE /v1/runs/${ID}`]);
  // Nothing is left for the end of the session.
  assert.deepEqual(await created.destroyAll(1000), []);
  assert.equal(calls.length, 2);
});

test('the end of a session destroys what it created, and reports what it cannot', async () => {
  let isGone = false;
  const { call, created, calls } = await connect((request) => {
    if (!request.startsWith('DELETE')) return RECORD;
    if (!isGone) return failure(500, 'internal');
    return { status: 'destroyed', cpu_ms: 1, mem_peak_bytes: 1, uptime_ms: 1, cost_cents: 0 };
  });
  await call('create_sandbox', {});
  assert.deepEqual(await created.destroyAll(1000), [ID]);
  isGone = true;
  await call('create_sandbox', {});
  assert.deepEqual(await created.destroyAll(1000), []);
  assert.equal(calls.at(-1), `DELETE /v1/runs/${ID}`);
});

test('partial forks return the children and why the others are missing', async () => {
  const { client } = await connect((request) => {
    if (!request.endsWith('/fork')) return RECORD;
    const error = { code: 'capacity', message: 'the machine is full', request_id: 'req1' };
    return Response.json([RECORD, { error }], { status: 207 });
  });
  const { structuredContent } = await client.callTool({
    name: 'fork',
    arguments: { sandboxId: ID, count: 2 },
  });
  const { children, failures } = structuredContent as {
    children: { sandboxId: string }[];
    failures: string[];
  };
  assert.deepEqual(
    children.map(({ sandboxId }) => sandboxId),
    [ID],
  );
  assert.match(failures.join(), /^capacity: the machine is full\./u);
});
