/** Limits of what one key may ask of `/mcp`, and the cost of a call for the others. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import type { FakeCommand } from '../testing/fakes/fake-runner.ts';
import { callTool, MCP_HEADERS, readOutcome, sendToolCall } from '../testing/requests/mcp-call.ts';

const MAX_TOOL_CALLS = 128;
const OPEN_STREAMS = 4;
/** Far below the deadlines of proxies and clients, far above the time of an answer. */
const HEAD_MS = 10_000;

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
  harness.runner.startsAtHead = true;
  ({ id } = await harness.create());
});
after(() => harness[Symbol.asyncDispose]());

function collectCommands(): FakeCommand[] {
  const commands: FakeCommand[] = [];
  harness.runner.onExec = (command) => void commands.push(command);
  return commands;
}

describe('a message that would take memory as long as its command runs is refused before it starts', () => {
  const elements = Array.from({ length: 200_000 }, () => ({}));
  const call = { jsonrpc: '2.0', id: 1, method: 'tools/call' };
  const exec = { name: 'exec', arguments: { sandboxId: 'run00', command: 'sleep 100', timeout: 86_400 } };
  const texts = { x: 'x'.repeat(70_000) };
  const cases: readonly [what: string, body: unknown, status: number, expected: RegExp][] = [
    ['many values in _meta', { ...call, params: { ...exec, _meta: { x: elements } } }, 413, /10000 values/u],
    ['many values beside params', { ...call, params: exec, x: elements }, 413, /10000 values/u],
    ['a long text in _meta', { ...call, params: { ...exec, _meta: texts } }, 413, /65536 characters/u],
    ['a long text beside params', { ...call, params: exec, ...texts }, 413, /65536 characters/u],
    ['a long id', { ...call, id: 'x'.repeat(257), params: exec }, 400, /^id: /u],
    ['an id that is an object', { ...call, id: {}, params: exec }, 400, /^id: /u],
    [
      'a subscription with arguments',
      { ...call, method: 'subscriptions/listen', params: { arguments: texts } },
      413,
      /65536 characters/u,
    ],
  ];
  for (const [what, body, expectedStatus, expected] of cases)
    test(what, async () => {
      const commands = collectCommands();
      const answer = await harness.call('POST', '/mcp', { body, headers: MCP_HEADERS });
      assert.deepEqual([answer.status, commands], [expectedStatus, []], JSON.stringify(answer.body));
      assert.match(answer.body.error.message, expected);
    });

  test('deep nesting', async () => {
    const nested = `${'['.repeat(9000)}${']'.repeat(9000)}`;
    const raw = JSON.stringify({ ...call, params: { ...exec, _meta: { x: 1 } } }).replace(
      '"x":1',
      `"x":${nested}`,
    );
    const headers = { ...MCP_HEADERS, 'content-type': 'application/json' };
    const { status, body } = await harness.call('POST', '/mcp', { raw, headers });
    assert.deepEqual([status, body.error.code], [413, 'payload_too_large']);
    assert.match(body.error.message, /64 levels/u);
  });

  test('but not the content of the largest file', async () => {
    const content = '\u0001'.repeat(524_288);
    const { value } = await callTool(harness, 'write_file', { sandboxId: id, path: '/tmp/large', content });
    assert.deepEqual(value, { path: '/tmp/large', bytes: content.length });
  });
});

test('an organization has a limited number of calls at once', async () => {
  const commands = collectCommands();
  const end = new AbortController();
  const args = { sandboxId: id, command: 'sleep 100' };
  const open = Array.from({ length: MAX_TOOL_CALLS }, () =>
    sendToolCall(harness, 'exec', args, { signal: end.signal }),
  );
  await Promise.all(open);
  await waitFor('the commands', () => commands.length === MAX_TOOL_CALLS);
  const refused = await sendToolCall(harness, 'list_sandboxes', {});
  assert.equal(refused.status, 429);
  assert.match(await refused.text(), /128 calls of MCP tools are open/u);
  const other = await harness.addOrganization();
  assert.equal((await callTool(harness, 'list_sandboxes', {}, { apiKey: other })).isError, false);
  end.abort();
  await waitFor(
    'room for a call',
    async () => (await sendToolCall(harness, 'list_sandboxes', {})).status === 200,
  );
});

test('a command over MCP counts as one stream', async () => {
  await using limited = await startHarness({ openStreamsPerOrganization: OPEN_STREAMS });
  limited.runner.startsAtHead = true;
  const commands: FakeCommand[] = [];
  limited.runner.onExec = (command) => void commands.push(command);
  const { id: sandboxId } = await limited.create();
  const args = { sandboxId, command: 'make' };
  const running = Array.from({ length: OPEN_STREAMS }, () => callTool(limited, 'exec', args));
  await waitFor('the commands', () => commands.length === OPEN_STREAMS);
  const { isError, text } = await callTool(limited, 'exec', args);
  assert.ok(isError && text.startsWith('rate_limited: 4 streams are open'), text);
  for (const command of commands) command.exit(0);
  for (const outcome of await Promise.all(running)) assert.equal(outcome.isError, false, outcome.text);
});

for (const revision of ['2025', '2026'] as const)
  test(`the head of an answer comes while a silent command runs (${revision})`, async () => {
    const commands = collectCommands();
    const args = { sandboxId: id, command: 'sleep 100' };
    // Aborting it would kill the command: only the head may take as long.
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(new Error('no head')), HEAD_MS);
    const response = await sendToolCall(harness, 'exec', args, { revision, signal: late.signal });
    clearTimeout(timer);
    await waitFor('the command', () => commands.length === 1);
    commands[0]?.exit(7);
    assert.equal((await readOutcome(response)).value['exitCode'], 7);
  });

test('the bytes of output are those that the command wrote', async () => {
  harness.runner.onExec = (command) => {
    command.stdout(Buffer.alloc(10, 0xff));
    command.stderr(Buffer.from('ä').subarray(0, 1));
    command.stderr(Buffer.from('ä').subarray(1));
    command.exit(0);
  };
  const { value } = await callTool(harness, 'exec', { sandboxId: id, command: 'cat /bin/true' });
  assert.deepEqual([value['stdoutBytes'], value['stderrBytes'], value['stderr']], [10, 2, 'ä']);
});

test('input that the schema allows reaches the command, or is refused with the way that works', async () => {
  const stdin = '漢'.repeat(300_000);
  let input = '';
  harness.runner.startsAtHead = false;
  harness.runner.onExec = (command) => {
    input = command.stdin;
    command.exit(0);
  };
  const taken = await callTool(harness, 'exec', { sandboxId: id, command: 'cat', stdin });
  harness.runner.startsAtHead = true;
  assert.deepEqual([taken.value['exitCode'], input === stdin], [0, true], taken.text);
  const refused = await callTool(harness, 'exec', {
    sandboxId: id,
    command: 'cat',
    stdin: `${stdin}${stdin}`.slice(0, 400_000),
  });
  assert.ok(refused.isError && refused.text.includes('write_file'), refused.text);
});

test('a path or labels that no request can carry are an error that says what to do', async () => {
  const labels = Object.fromEntries(
    Array.from({ length: 32 }, (_, index) => [`${'k'.repeat(60)}${index}`, 'ä'.repeat(255)]),
  );
  for (const [tool, args] of [
    ['list_sandboxes', { labels }],
    ['read_file', { sandboxId: id, path: `/${'ä'.repeat(4000)}` }],
  ] as const) {
    const { isError, text } = await callTool(harness, tool, args);
    assert.ok(isError && /^headers_too_large: .*16 KiB.*\n.*shorter path/u.test(text), text);
  }
});

test('reading a file in parts asks the guest for these parts only, and logs their size', async () => {
  harness.runner.files.contents.set('/tmp/big', Buffer.alloc(3_000_000, 'x'));
  const { id: sandboxId } = await harness.create();
  const before = harness.logLines.length;
  let offset: unknown = 0;
  for (let part = 0; part < 3; part += 1) {
    const { value } = await callTool(harness, 'read_file', {
      sandboxId,
      path: '/tmp/big',
      offset,
      maxBytes: 4,
    });
    assert.equal(value['bytes'], 4);
    offset = value['nextOffset'];
  }
  assert.equal(offset, 12);
  const log = await (await harness.fetch('GET', `/v1/runs/${sandboxId}/audit`)).text();
  const sizes = [...log.matchAll(/"event":"file.download".*?"size":(\d+)/gu)].map(([, size]) => Number(size));
  assert.deepEqual(sizes, [5, 5, 5], log);
  const broken = harness.logLines
    .slice(before)
    .filter((line) => /ended before the answer|Premature/u.test(line));
  assert.deepEqual(broken, []);
});

test('the URL of a port does not restart the idle timer', async () => {
  const { id: sandboxId } = await harness.create();
  const expiry = async () => (await harness.call('GET', `/v1/runs/${sandboxId}`)).body.expires_at as string;
  const before = await expiry();
  await new Promise((resolve) => setTimeout(resolve, 50));
  await callTool(harness, 'url', { sandboxId, port: 80 });
  await callTool(harness, 'list_sandboxes', {});
  // Rounded to milliseconds.
  assert.ok(Math.abs(Date.parse(await expiry()) - Date.parse(before)) <= 2);
  await callTool(harness, 'list_files', { sandboxId, path: '/tmp' });
  assert.ok(Date.parse(await expiry()) - Date.parse(before) >= 45);
});
