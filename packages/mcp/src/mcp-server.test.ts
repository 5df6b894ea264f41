import assert from 'node:assert/strict';
import { describe, mock, test } from 'node:test';
import { Client, InMemoryTransport } from '@modelcontextprotocol/client';
import { Coppice, type FetchFunction } from '../../sdk/src/index.ts';
import { wireRecord } from '../../sdk/src/testing/loopback-server.ts';
import { CreatedSandboxes } from './created-sandboxes.ts';
import { buildMcpServer } from './mcp-server.ts';
import { exec } from './tools/exec.ts';

const RECORD = wireRecord();
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
  const reports: string[] = [];
  const created = new CreatedSandboxes((text) => void reports.push(text));
  const server = buildMcpServer({ client: service, creations: created }, '1.2.3');
  const client = new Client({ name: 'test', version: '1' });
  const [one, other] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(other), client.connect(one)]);
  const call = async (name: string, args: Record<string, unknown>, signal?: AbortSignal) => {
    const options = signal === undefined ? {} : { signal };
    const result = await client.callTool({ name, arguments: args }, options);
    const { isError = false, content, structuredContent = {} } = result;
    const [first] = content;
    const value = structuredContent as Record<string, unknown>;
    return { isError, text: first?.type === 'text' ? first.text : '', value };
  };
  return { client, call, calls, created, reports };
}

const DESTROYED = { status: 'destroyed', cpu_ms: 1, mem_peak_bytes: 1, uptime_ms: 1, cost_cents: 0 };

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
      return DESTROYED;
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
    if (!isGone) return failure(403, 'forbidden');
    return DESTROYED;
  });
  await call('create_sandbox', {});
  assert.deepEqual(await created.destroyAll(1000), [ID]);
  isGone = true;
  await call('create_sandbox', {});
  assert.deepEqual(await created.destroyAll(1000), []);
  assert.equal(calls.at(-1), `DELETE /v1/runs/${ID}`);
});

test('a sandbox whose caller has left is destroyed even if the rate limit is reached, or its id is reported', async () => {
  let refused = 0;
  const { call, calls, created, reports } = await connect((request) => {
    if (!request.startsWith('DELETE')) return record.promise;
    refused += 1;
    if (isForbidden) return failure(401, 'unauthorized');
    return refused < 3 ? failure(429, 'rate_limited') : DESTROYED;
  });
  let record = Promise.withResolvers<unknown>();
  let isForbidden = false;
  const cancelOne = async (): Promise<void> => {
    const controller = new AbortController();
    const before = calls.length;
    const rejected = assert.rejects(call('create_sandbox', {}, controller.signal));
    while (calls.length === before) await new Promise(setImmediate);
    controller.abort(new Error('enough'));
    await rejected;
    record.resolve(RECORD);
    assert.equal(created.pending, 1);
    assert.equal(await created.settle(10_000), 0);
  };
  await cancelOne();
  assert.deepEqual([refused, reports], [3, []]);
  record = Promise.withResolvers();
  isForbidden = true;
  await cancelOne();
  assert.equal(refused, 4);
  assert.match(reports.join(), new RegExp(`^could not destroy ${ID}`, 'u'));
});

test('the end of a session destroys many sandboxes, a few at a time', async () => {
  let open = 0;
  let most = 0;
  const ids = Array.from({ length: 40 }, (_, index) => `run${index.toString(16).padStart(20, '0')}`);
  const { call, created, calls } = await connect(async (request) => {
    if (request.endsWith('/fork'))
      return Response.json(
        ids.map((id) => ({ ...RECORD, id })),
        { status: 201 },
      );
    if (!request.startsWith('DELETE')) return RECORD;
    open += 1;
    most = Math.max(most, open);
    await new Promise((resolve) => setTimeout(resolve, 5));
    open -= 1;
    return DESTROYED;
  });
  await call('fork', { sandboxId: ID, count: ids.length });
  assert.deepEqual(await created.destroyAll(10_000), []);
  const destroyed = calls.filter((request) => request.startsWith('DELETE'));
  assert.deepEqual(
    destroyed.toSorted(),
    ids.map((id) => `DELETE /v1/runs/${id}`),
  );
  assert.ok(most > 1 && most <= 8, String(most));
});

describe('a sandbox that has the state already', () => {
  const cases = { resume: 'running', hibernate: 'hibernated', destroy_sandbox: 'destroyed' };
  for (const [tool, status] of Object.entries(cases)) {
    test(`${tool} succeeds for one that is ${status}`, async () => {
      const { call } = await connect((request) =>
        request.startsWith('GET') ? { ...RECORD, status } : failure(409, 'invalid_state'),
      );
      const { isError, text, value } = await call(tool, { sandboxId: ID });
      assert.ok(!isError, text);
      assert.equal(value['status'], status);
      if (tool === 'destroy_sandbox') assert.equal(value['cpuMs'], null);
    });

    test(`${tool} fails for one that is failed, or about to change`, async () => {
      for (const record of [{ status: 'failed' }, { status, operation: 'hibernating' }]) {
        const { call } = await connect((request) =>
          request.startsWith('GET') ? { ...RECORD, ...record } : failure(409, 'invalid_state'),
        );
        const { isError, text } = await call(tool, { sandboxId: ID });
        assert.ok(isError && text.startsWith('invalid_state: '), text);
      }
    });
  }
});

test('input of a command that no request can hold is refused with the way that works', async () => {
  const { call, calls } = await connect(() => failure(500, 'internal'));
  const [ideographs, controls] = ['漢'.repeat(400_000), '\u0001'.repeat(200_000)];
  for (const [stdin, env] of [
    [ideographs, {}],
    [controls, {}],
    ['', Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`A${index}`, 'x'.repeat(32_768)]))],
  ]) {
    const { isError, text } = await call('exec', { sandboxId: ID, command: 'cat', stdin, env });
    assert.ok(isError && /^stdin: .*over 1 MiB.*write_file.*command < file/u.test(text), text.slice(0, 300));
  }
  assert.deepEqual(calls, []);
});

test('the JSON Schema of a tool is built once for all servers', async () => {
  const tools = async () => (await (await connect(() => ({}))).client.listTools()).tools;
  const before = await tools();
  const build = mock.method(exec.input['~standard'].jsonSchema, 'input');
  assert.deepEqual(await tools(), before);
  assert.equal(build.mock.callCount(), 0);
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
