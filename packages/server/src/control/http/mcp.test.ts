/** MCP over HTTP, with the official clients. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as sendRequest, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as FirstClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as FirstTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { AccountClient } from '../testing/requests/account-client.ts';
import {
  API_KEY,
  INVITATION,
  startHarness,
  startHarnessWith,
  waitFor,
  type ControlHarness,
} from '../testing/control-harness.ts';
import type { FakeCommand } from '../testing/fakes/fake-runner.ts';
import { callTool, MCP_HEADERS as HEADERS, sendToolCall } from '../testing/requests/mcp-call.ts';

const IDENTITY = { name: 'test', version: '1.0.0' };

/** The part of a client that the tests use and both versions have. */
interface McpClient extends AsyncDisposable {
  call: (
    name: string,
    args: Record<string, unknown>,
    options?: { signal?: AbortSignal; onprogress?: (progress: { progress: number }) => void },
  ) => Promise<{ isError: boolean; text: string; value: Record<string, unknown> }>;
  listTools: () => Promise<string[]>;
}

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
  harness.runner.startsAtHead = true;
  ({ id } = await harness.create());
});
after(() => harness[Symbol.asyncDispose]());

type Result = Awaited<ReturnType<Client['callTool']>>;

function toOutcome({ isError = false, content, structuredContent }: Result) {
  const [first] = content;
  assert.ok(first?.type === 'text');
  return { isError, text: first.text, value: (structuredContent ?? {}) as Record<string, unknown> };
}

/** Clients of the revision of 2026, of 2025, and of the first version of the official client. */
const CLIENTS = {
  '2026-07-28': async (key?: string) => connectSecond(key, { pin: '2026-07-28' }),
  '2025-11-25': async (key?: string) => connectSecond(key, 'legacy'),
  'first client': connectFirst,
} satisfies Record<string, (key?: string) => Promise<McpClient>>;

const transportOptions = (key: string) => ({ requestInit: { headers: { authorization: `Bearer ${key}` } } });

async function connectSecond(key = API_KEY, mode: 'legacy' | { pin: string } = 'legacy'): Promise<McpClient> {
  const client = new Client(IDENTITY, { versionNegotiation: { mode } });
  await client.connect(
    new StreamableHTTPClientTransport(new URL('/mcp', harness.address), transportOptions(key)),
  );
  return {
    call: async (name, args, options) => toOutcome(await client.callTool({ name, arguments: args }, options)),
    listTools: async () => (await client.listTools()).tools.map(({ name }) => name),
    [Symbol.asyncDispose]: () => client.close(),
  };
}

async function connectFirst(key = API_KEY): Promise<McpClient> {
  const client = new FirstClient(IDENTITY);
  await client.connect(new FirstTransport(new URL('/mcp', harness.address), transportOptions(key)));
  return {
    call: async (name, args, options) =>
      toOutcome((await client.callTool({ name, arguments: args }, undefined, options)) as Result),
    listTools: async () => (await client.listTools()).tools.map(({ name }) => name),
    [Symbol.asyncDispose]: () => client.close(),
  };
}

/** The next command that is started. */
function nextCommand(): Promise<FakeCommand> {
  const started = Promise.withResolvers<FakeCommand>();
  harness.runner.onExec = started.resolve;
  return started.promise;
}

/** The runner kills a command whose stream has ended. */
const isKilled = ({ stream }: FakeCommand): boolean => stream.closed || stream.destroyed;

for (const [name, connect] of Object.entries(CLIENTS))
  describe(`a client (${name})`, () => {
    let client: McpClient;
    before(async () => {
      client = await connect();
    });
    after(() => client[Symbol.asyncDispose]());

    test('lists the tools', async () => {
      const tools = await client.listTools();
      for (const tool of ['create_sandbox', 'exec', 'url', 'hibernate', 'resume', 'checkpoint', 'restore'])
        assert.ok(tools.includes(tool));
      for (const tool of ['list_sandboxes', 'destroy_sandbox']) assert.ok(tools.includes(tool));
    });

    test('creates a sandbox, runs a command and destroys it; the audit log has each step', async () => {
      const created = await client.call('create_sandbox', { image: 'node:22-slim', labels: { by: 'mcp' } });
      assert.equal(created.isError, false, created.text);
      assert.deepEqual(JSON.parse(created.text), created.value);
      const sandboxId = String(created.value['sandboxId']);
      harness.runner.onExec = (command) => {
        command.stdout('out');
        command.stderr('err');
        command.exit(3);
      };
      const { value } = await client.call('exec', { sandboxId, command: 'make' });
      assert.deepEqual(
        [value['exitCode'], value['stdout'], value['stderr'], value['truncated']],
        [3, 'out', 'err', false],
      );
      const { value: list } = await client.call('list_sandboxes', { labels: { by: 'mcp' } });
      assert.ok(JSON.stringify(list).includes(sandboxId));
      const { value: end } = await client.call('destroy_sandbox', { sandboxId });
      assert.equal(end['status'], 'destroyed');
      const log = await (await harness.fetch('GET', `/v1/runs/${sandboxId}/audit`)).text();
      for (const event of ['sandbox.created', 'exec.start', 'exec.exit', 'sandbox.destroyed'])
        assert.ok(log.includes(event), event);
    });

    test('writes, reads and lists files', async () => {
      const written = await client.call('write_file', { sandboxId: id, path: '/tmp/new', content: 'käfer' });
      assert.deepEqual(written.value, { path: '/tmp/new', bytes: 6 });
      const { value } = await client.call('read_file', { sandboxId: id, path: '/tmp/new', maxBytes: 4 });
      assert.deepEqual(value, { content: 'käf', encoding: 'utf8', bytes: 4, nextOffset: 4 });
      const { value: end } = await client.call('read_file', { sandboxId: id, path: '/tmp/new', offset: 4 });
      assert.deepEqual(end, { content: 'er', encoding: 'utf8', bytes: 2, nextOffset: null });
      const { value: list } = await client.call('list_files', { sandboxId: id, path: '/tmp' });
      assert.ok(JSON.stringify(list).includes('"new"'), JSON.stringify(list));
    });

    test('gets progress while a command writes', async () => {
      const started = nextCommand();
      const seen: number[] = [];
      const running = client.call(
        'exec',
        { sandboxId: id, command: 'make' },
        { onprogress: ({ progress }) => void seen.push(progress) },
      );
      const command = await started;
      command.stdout('x'.repeat(1000));
      await waitFor('progress', () => seen.length > 0);
      command.exit(0);
      await running;
      assert.deepEqual(seen, [1000]);
    });

    test('kills a command by cancelling its call', async () => {
      const started = nextCommand();
      const controller = new AbortController();
      const running = client.call(
        'exec',
        { sandboxId: id, command: 'sleep 100' },
        { signal: controller.signal },
      );
      const rejected = assert.rejects(running);
      const command = await started;
      controller.abort(new Error('enough'));
      await rejected;
      await waitFor('the end of the command', () => isKilled(command));
    });

    test('reads in the error of an unknown id what to do next, also for another organization’s', async () => {
      const key = await harness.addOrganization();
      await using other = await connect(key);
      const theirs = await other.call('create_sandbox', { image: 'node:22-slim' });
      for (const sandboxId of [String(theirs.value['sandboxId']), `run${'0'.repeat(20)}`, 'my-sandbox']) {
        const { isError, text } = await client.call('exec', { sandboxId, command: 'id' });
        assert.ok(isError && /create_sandbox.*list_sandboxes/u.test(text), text);
      }
    });

    test('reads in the error of the service what to do next', async () => {
      const { isError, text } = await client.call('create_sandbox', { image: 'node:latest' });
      assert.ok(isError && text.startsWith('image_not_pinned: ') && text.includes('python:3.12-slim'), text);
      const extra = await client.call('list_sandboxes', { lable: { a: 'b' } });
      assert.ok(extra.isError && extra.text.includes('lable'), extra.text);
    });
  });

const LIST = { jsonrpc: '2.0', id: 1, method: 'tools/list' };

test('a request needs a key, and names what is missing', async () => {
  const post = (apiKey: string | null) =>
    harness.call('POST', '/mcp', { body: LIST, headers: HEADERS, apiKey });
  for (const key of [null, `cop_live_us_${'0'.repeat(40)}`]) {
    const { status, headers, body } = await post(key);
    assert.deepEqual([status, body.error.code], [401, 'unauthorized']);
    assert.match(headers.get('www-authenticate') ?? '', /^Bearer/);
  }
});

test('pages of other origins are refused, whatever host they name', async () => {
  const origin = 'https://app.example.test';
  for (const headers of [
    { ...HEADERS, origin },
    { ...HEADERS, origin: 'https://127.0.0.1' },
    { ...HEADERS, origin: 'null' },
  ]) {
    const { status, body } = await harness.call('POST', '/mcp', { body: LIST, headers });
    assert.deepEqual([status, body.error.code], [403, 'forbidden_origin']);
  }
  const own = await harness.fetch('POST', '/mcp', {
    body: LIST,
    headers: { ...HEADERS, origin: harness.address },
  });
  assert.equal(own.status, 200);
});

test('a batch of messages is refused', async () => {
  const { status, body } = await harness.call('POST', '/mcp', { body: [LIST, LIST], headers: HEADERS });
  assert.deepEqual([status, body.error.code], [400, 'invalid_request']);
});

for (const [host, expected] of [
  ['host:99999', 400],
  ['user:word@host/path?query', 200],
] as const)
  test(`the host "${host}" is answered with ${expected}`, async () => {
    const request = sendRequest(`${harness.address}/mcp`, {
      method: 'POST',
      headers: { ...HEADERS, host, authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
    });
    const params = { name: 'list_sandboxes', arguments: {} };
    request.end(JSON.stringify({ ...LIST, method: 'tools/call', params }));
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    const content = await text(answer);
    assert.equal(answer.statusCode, expected, content);
    if (expected === 200) assert.ok(content.includes(id) && !content.includes('"isError":true'), content);
  });

test('other methods are answered with those that exist', async () => {
  for (const method of ['GET', 'DELETE']) {
    const { status, headers } = await harness.call(method, '/mcp', { headers: HEADERS });
    assert.deepEqual([status, headers.get('allow')], [405, 'POST']);
  }
});

test('a command is killed when the connection of its call ends', async () => {
  const started = nextCommand();
  const controller = new AbortController();
  const params = { name: 'exec', arguments: { sandboxId: id, command: 'sleep 100' } };
  const body = { jsonrpc: '2.0', id: 2, method: 'tools/call', params };
  const rejected = assert.rejects(
    harness.call('POST', '/mcp', { body, headers: HEADERS, signal: controller.signal }),
  );
  const command = await started;
  controller.abort();
  await rejected;
  await waitFor('the end of the command', () => isKilled(command));
});

test('a cancellation ends the call of its own session only', async () => {
  await using first = await connectFirst();
  await using second = await connectFirst();
  const commands: FakeCommand[] = [];
  harness.runner.onExec = (command) => void commands.push(command);
  const controller = new AbortController();
  const args = { sandboxId: id, command: 'sleep 100' };
  const cancelled = assert.rejects(first.call('exec', args, { signal: controller.signal }));
  await waitFor('the first command', () => commands.length === 1);
  // Both clients count their requests from 0, so both calls have the same id.
  const other = second.call('exec', args);
  await waitFor('the second command', () => commands.length === 2);
  controller.abort(new Error('enough'));
  await cancelled;
  await waitFor('the end of the command', () => isKilled(commands[0]!));
  assert.equal(isKilled(commands[1]!), false);
  commands[1]!.exit(0);
  assert.equal((await other).value['exitCode'], 0);
});

test('without a session a call has no cancellation, and a session has each id once', async () => {
  const commands: FakeCommand[] = [];
  harness.runner.onExec = (command) => void commands.push(command);
  const args = { sandboxId: id, command: 'sleep 100' };
  const running = [callTool(harness, 'exec', args, { id: 2 }), callTool(harness, 'exec', args, { id: 2 })];
  await waitFor('two commands', () => commands.length === 2);
  const cancel = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 2 } };
  assert.equal((await harness.fetch('POST', '/mcp', { body: cancel, headers: HEADERS })).status, 202);
  const session = 'a-session';
  running.push(callTool(harness, 'exec', args, { id: 2, session }));
  await waitFor('the command of the session', () => commands.length === 3);
  const again = await sendToolCall(harness, 'exec', args, { id: 2, session });
  assert.equal(again.status, 400);
  assert.match(await again.text(), /id: the session runs a call with the id 2/u);
  // A text is another id.
  running.push(callTool(harness, 'exec', args, { id: '2', session }));
  await waitFor('all commands', () => commands.length === 4);
  assert.deepEqual(commands.map(isKilled), [false, false, false, false]);
  for (const command of commands) command.exit(0);
  for (const { isError, text } of await Promise.all(running)) assert.equal(isError, false, text);
  const long = await sendToolCall(harness, 'exec', args, { session: 'x'.repeat(200) });
  assert.equal(long.status, 400);
});

test('a page that may use the service can read the id of its session', async () => {
  const origin = 'https://app.example.test';
  await using named = await startHarnessWith({ corsOrigins: [origin] });
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: IDENTITY };
  const body = { jsonrpc: '2.0', id: 0, method: 'initialize', params };
  const { status, headers } = await named.fetch('POST', '/mcp', { body, headers: { ...HEADERS, origin } });
  assert.equal(status, 200);
  assert.ok(headers.has('mcp-session-id'));
  const exposed = headers.get('access-control-expose-headers')?.split(/, */u);
  assert.ok(exposed?.includes('mcp-session-id'), String(exposed));
});

describe('a key', () => {
  let owner: AccountClient;
  before(async () => {
    owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  });
  const addKey = async (key: { name: string; scope?: 'read' }): Promise<{ id: string; key: string }> =>
    (await owner.call('POST', `${owner.team}/keys`, key)).body;

  test('with the scope "read" may list sandboxes and read their files, and change nothing', async () => {
    const { key } = await addKey({ name: 'reads', scope: 'read' });
    await using client = await connectSecond(key);
    harness.runner.files.contents.set('/tmp/secret', Buffer.from('top secret'));
    assert.equal((await client.call('list_sandboxes', {})).isError, false);
    assert.equal((await client.call('list_files', { sandboxId: id, path: '/tmp' })).isError, false);
    assert.equal((await client.call('url', { sandboxId: id, port: 80 })).isError, false);
    const { value } = await client.call('read_file', { sandboxId: id, path: '/tmp/secret' });
    assert.equal(value['content'], 'top secret');
    const target = { sandboxId: id };
    const changes = {
      create_sandbox: { image: 'node:22-slim' },
      exec: { ...target, command: 'id' },
      write_file: { ...target, path: '/tmp/new', content: 'x' },
      fork: target,
      checkpoint: target,
      restore: { snapshotId: `snap${'0'.repeat(20)}` },
      hibernate: target,
      resume: target,
      destroy_sandbox: target,
    };
    for (const [tool, args] of Object.entries(changes)) {
      const { isError, text } = await client.call(tool, args);
      assert.ok(isError && text.startsWith('forbidden: '), text);
    }
    const readers = ['list_files', 'list_sandboxes', 'read_file', 'url'];
    assert.deepEqual([...Object.keys(changes), ...readers].sort(), (await client.listTools()).sort());
  });

  test('that is revoked ends the call that runs, and kills its command', async () => {
    const { key, id: keyId } = await addKey({ name: 'revoked' });
    await using client = await connectSecond(key);
    const started = nextCommand();
    const running = client.call('exec', { sandboxId: id, command: 'sleep 100' });
    const command = await started;
    assert.equal((await owner.call('DELETE', `${owner.team}/keys/${keyId}`)).status, 204);
    const { isError, text } = await running;
    assert.ok(isError && text.startsWith('unauthorized: '), text);
    await waitFor('the end of the command', () => isKilled(command));
  });
});

test('the rate limit of an organization counts calls of tools and the requests that they make', async () => {
  await using limited = await startHarness({ requestsPerSecond: 1, requestBurst: 100 });
  const params = { name: 'list_sandboxes', arguments: {} };
  const body = { jsonrpc: '2.0', id: 1, method: 'tools/call', params };
  const left = async (): Promise<number> => {
    const answer = await limited.fetch('POST', '/mcp', { body, headers: HEADERS });
    await answer.text();
    return Number(/;r=(\d+)/u.exec(answer.headers.get('ratelimit') ?? '')?.[1]);
  };
  const first = await left();
  let last = first;
  for (let count = 0; count < 20; count += 1) last = await left();
  // Two for each call, less what was refilled meanwhile.
  assert.ok(first - last > 25, `${first} to ${last}`);
});

test('a shutdown ends a call with an error that says what to do', async () => {
  await using client = await connectSecond();
  const started = nextCommand();
  const running = client.call('exec', { sandboxId: id, command: 'sleep 100' });
  await started;
  const stopped = harness.stopControl();
  const { isError, text } = await running;
  assert.ok(isError && text.startsWith('unavailable: ') && text.includes('Try again'), text);
  await stopped;
});
