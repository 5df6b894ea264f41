/** Memory for command output: the output that one organization holds does not cut short that of another. */
import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { COMMAND_FLOOR_BYTES } from '../sandbox/commands/output-budget.ts';
import { BLOCK_BYTES } from '../sandbox/commands/output-capture.ts';
import type { FakeCommand } from '../testing/fakes/fake-runner.ts';
import { API_KEY, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

const STREAM_BYTES = 512 << 10;
/** The floors of 32 commands; one organization may use those of at most 16. */
const TOTAL_BYTES = 64 * COMMAND_FLOOR_BYTES;
const COMMANDS = 16;

let harness: ControlHarness;
before(async () => {
  harness = await startHarness({ execOutputBytes: STREAM_BYTES, execOutputTotalBytes: TOTAL_BYTES });
});
after(() => harness[Symbol.asyncDispose]());

async function createOf(apiKey: string): Promise<string> {
  const { body } = await harness.call('POST', '/v1/runs', { apiKey, body: { image: 'node:22-slim' } });
  return body.id as string;
}

const exec = (id: string, apiKey: string, command: string) =>
  harness.call('POST', `/v1/runs/${id}/exec`, { apiKey, body: { command } });

test("commands of one organization that fill its share leave another's answer whole", async () => {
  const greedy = await createOf(API_KEY);
  const strangersKey = await harness.addOrganization();
  const strangers = await createOf(strangersKey);
  const flooding: FakeCommand[] = [];
  harness.runner.onExec = (command) => {
    if (command.head.command !== 'flood') {
      command.stdout('hi\n');
      command.exit(0);
      return;
    }
    flooding.push(command);
    command.stdout(Buffer.alloc(STREAM_BYTES, 'o'));
    command.stderr(Buffer.alloc(STREAM_BYTES, 'e'));
  };
  const floods = Array.from({ length: COMMANDS }, () => exec(greedy, API_KEY, 'flood'));
  await waitFor(
    'the output to be read',
    () => flooding.length === COMMANDS && flooding.every(({ stream }) => stream.writableLength === 0),
  );
  assert.deepEqual((await exec(strangers, strangersKey, 'echo hi')).body, {
    exit_code: 0,
    stdout: 'hi\n',
    stderr: '',
    timed_out: false,
    truncated: false,
  });
  const refused = await exec(greedy, API_KEY, 'flood');
  assert.deepEqual([refused.status, refused.body.error.code], [429, 'capacity']);
  assert.ok(Number(refused.headers.get('retry-after')) > 0);
  assert.equal(flooding.length, COMMANDS, 'a refused command is not started');
  for (const command of flooding) command.exit(0);
  const answers = await Promise.all(floods);
  for (const { body } of answers) {
    for (const stream of [body.stdout, body.stderr]) assert.ok(stream.length >= BLOCK_BYTES, stream.length);
    assert.equal(body.truncated, body.stdout.length < STREAM_BYTES || body.stderr.length < STREAM_BYTES);
  }
  assert.ok(answers.some(({ body }) => body.truncated));
  const later = exec(greedy, API_KEY, 'flood');
  await waitFor('another command', () => flooding.length > COMMANDS);
  flooding.at(-1)?.exit(0);
  assert.equal((await later).body.truncated, false);
});

/** Sends an exec and reads nothing of its answer. */
function execUnread({ control }: ControlHarness, id: string): Socket {
  const { hostname, port } = new URL(control?.address ?? '');
  const socket = connect(Number(port), hostname);
  const body = JSON.stringify({ command: 'unread' });
  const head = [
    `POST /v1/runs/${id}/exec HTTP/1.1`,
    `host: ${hostname}`,
    `authorization: Bearer ${API_KEY}`,
    'content-type: application/json',
    `content-length: ${body.length}`,
  ];
  socket.write(`${head.join('\r\n')}\r\n\r\n${body}`);
  return socket.pause();
}

test('an answer that its client does not read counts as an open request until the client leaves', async () => {
  await using small = await startHarness({ openRequestsPerOrganization: 1 });
  const { id } = await small.create();
  const ended: string[] = [];
  small.runner.onExec = (command) => {
    // More than the sockets' buffers hold.
    if (command.head.command === 'unread')
      for (let sent = 0; sent < 14; sent += 1) command.stdout(Buffer.alloc(1 << 20, 'x'));
    command.exit(0);
    ended.push(command.head.command);
  };
  const socket = execUnread(small, id);
  await waitFor('the exit in the audit log', async () => {
    const text = await (await small.fetch('GET', `/v1/runs/${id}/audit`)).text();
    return text.includes('exec.exit');
  });
  const expires = async () => (await small.call('GET', `/v1/runs/${id}`)).body.expires_at as string | null;
  await waitFor('the end of the use of the sandbox', async () => (await expires()) !== null);
  const execIn = (command: string) => small.call('POST', `/v1/runs/${id}/exec`, { body: { command } });
  assert.equal((await execIn('second')).status, 429);
  assert.deepEqual(ended, ['unread']);
  socket.destroy();
  await waitFor('the place to be free', async () => (await execIn('third')).status === 200);
});
