/** Commands of guests that lie about them, and of runners whose answers are lost. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { ServerHttp2Stream } from 'node:http2';
import { setTimeout as delay } from 'node:timers/promises';
import { encodeFrame, FRAME } from '../../lib/protocol/frames.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(async () => {
  harness.runner.commands.intercept = () => false;
  harness.runner.commands.onStart = () => undefined;
  ({ id } = await harness.create());
});

const path = (command = '', rest = ''): string =>
  `/v1/runs/${id}/commands${command === '' ? '' : `/${command}`}${rest}`;
const start = (headers: Record<string, string> = {}, body: object = {}) =>
  harness.call('POST', path(), { body: { command: 'deploy', ...body }, headers });
const stateOf = async (command: string): Promise<string> =>
  (await harness.call('GET', path(command))).body.state as string;

async function processEvents(): Promise<string[]> {
  const text = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  return text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { event: string; data: { exit_code?: number | null } })
    .filter(({ event }) => event.startsWith('exec.'))
    .map(({ event, data }) => (event === 'exec.start' ? event : `${event} ${data.exit_code}`));
}

/** Answers the next request of a kind by `act`, after the guest has done what it asks for if `isDone`. */
function once(action: string, act: (stream: ServerHttp2Stream) => void, isDone = false): void {
  const { commands } = harness.runner;
  commands.intercept = async (stream, vmId, asked) => {
    if (asked !== action || vmId !== id) return false;
    commands.intercept = () => false;
    if (!isDone) {
      act(stream);
      return true;
    }
    stream.respond = () => act(stream);
    stream.end = () => stream;
    return false;
  };
}

const answerError = (status: number, code: string) => (stream: ServerHttp2Stream) => {
  stream.respond({ ':status': status });
  stream.end(JSON.stringify({ error: { code, message: 'no' } }));
};

test('a start whose answer is lost runs once, whatever the caller repeats', async () => {
  once('POST /agent/commands', (stream) => void stream.destroy(), true);
  const headers = { 'idempotency-key': 'lost' };
  const first = await start(headers);
  const second = await start(headers);
  assert.deepEqual([first.status, second.status], [201, 201]);
  assert.equal(first.body.id, second.body.id);
  assert.equal(harness.runner.commands.list(id).length, 1);
});

test('a start with an unreadable answer is not known to have failed', async () => {
  once(
    'POST /agent/commands',
    (stream) => {
      http2Respond(stream, '{"id":');
    },
    true,
  );
  const headers = { 'idempotency-key': 'garbled' };
  const first = await start(headers);
  assert.deepEqual([first.status, first.body.error.code], [504, 'outcome_unknown']);
  await waitFor('the answer once the guest was compared', async () => {
    const again = await start(headers);
    if (again.status !== 503) assert.equal(again.status, 201);
    return again.status === 201;
  });
  assert.equal(harness.runner.commands.list(id).length, 1);
  assert.deepEqual(await processEvents(), ['exec.start']);
});

test('a runner that is busy with the VM does not make commands look lost', async () => {
  const { body } = await start();
  const { commands } = harness.runner;
  await waitFor('the watch', () => commands.isWatched(id));
  let asked = 0;
  commands.intercept = (stream, _, action) => {
    if (action !== 'GET /agent/commands' || (asked += 1) > 2) return false;
    answerError(409, 'invalid_state')(stream);
    return true;
  };
  commands.cutWatches(id);
  await waitFor('the next watch', () => asked > 2 && commands.isWatched(id));
  assert.equal(await stateOf(body.id), 'running');
  commands.end(id, commands.find(id, body.id), 4);
  await waitFor('its end', async () => (await stateOf(body.id)) === 'exited');
});

test('the log of a sandbox that ends has the ends of its commands, and the list is filtered by what it shows', async () => {
  await start();
  await harness.call('DELETE', `/v1/runs/${id}`);
  assert.deepEqual(await processEvents(), ['exec.start', 'exec.exit null']);
  const states = async (state: string) =>
    (await harness.call('GET', path('', `?state=${state}`))).body.length;
  assert.deepEqual([await states('running'), await states('lost')], [0, 1]);
});

test('a guest cannot revive a command without a rollback', async () => {
  const { commands } = harness.runner;
  const { body } = await start();
  const guest = commands.find(id, body.id);
  for (let count = 0; count < 3; count += 1) {
    commands.end(id, guest, count);
    await waitFor('the end', async () => (await stateOf(body.id)) === 'exited');
    guest.exit = undefined;
    // Another command keeps the guest watched, and lets it be compared.
    await start();
    await waitFor('the watch', () => commands.isWatched(id));
  }
  const exits = (await processEvents()).filter((event) => event.startsWith('exec.exit'));
  assert.deepEqual(exits, ['exec.exit 0']);
});

test('a guest that has commands of a sandbox which is none of its ancestors does not get them', async () => {
  const { commands } = harness.runner;
  const { body } = await start({}, { command: 'curl -H secret' });
  const stranger = (await harness.create()).id;
  commands.copy(id, stranger);
  id = stranger;
  await start({}, { command: 'own' });
  await waitFor('the watch, after the comparison', () => commands.isWatched(stranger));
  const listed = (await harness.call('GET', path())).body as { command: string }[];
  assert.deepEqual(
    listed.map(({ command }) => command),
    ['own'],
  );
  assert.equal((await harness.call('GET', path(body.id))).status, 404);
});

test('output in empty frames, with a position that goes back, or beyond all numbers is refused', async () => {
  const { body } = await start();
  const position = (at: number) => encodeFrame(FRAME.position, Buffer.from(JSON.stringify({ position: at })));
  const text = encodeFrame(FRAME.stdout, Buffer.from('text'));
  for (const frames of [
    [encodeFrame(FRAME.stdout, Buffer.alloc(0))],
    [position(0), text, position(0)],
    [position(Number.MAX_SAFE_INTEGER), text],
  ]) {
    once('GET /agent/commands/output', (stream) => {
      stream.respond({ ':status': 200 });
      stream.end(Buffer.concat(frames));
    });
    const answer = await harness.call('GET', path(body.id, '/output'));
    assert.deepEqual([answer.status, answer.body.error.code], [502, 'guest_unreachable']);
  }
});

test('a guest that never ends its list delays a record for seconds only', async () => {
  const { body } = await start();
  harness.runner.commands.intercept = (stream, _, action) => {
    if (action !== 'GET /agent/commands') return false;
    stream.respond({ ':status': 200 });
    stream.write('[');
    return true;
  };
  const beganAt = performance.now();
  assert.equal(await stateOf(body.id), 'running');
  assert.ok(performance.now() - beganAt < 5000);
});

test('a client that leaves before its command runs keeps no sandbox awake', async () => {
  ({ id } = await harness.create({ timeout: 1 }));
  const gate = Promise.withResolvers<void>();
  harness.runner.commands.onStart = () => gate.promise;
  const left = new AbortController();
  const body = { command: 'sleep infinity', detached: false };
  const asking = harness.fetch('POST', path(), { body, signal: left.signal });
  await waitFor('the start', () =>
    harness.runner.requests.some((one) => one.includes(`${id}/agent/commands`)),
  );
  left.abort();
  await assert.rejects(asking);
  gate.resolve();
  await waitFor(
    'the idle sandbox to end',
    async () => (await harness.call('GET', `/v1/runs/${id}`)).body.status === 'destroyed',
  );
});

test('a sandbox that ends while a command starts is not asked any more', async () => {
  const gate = Promise.withResolvers<void>();
  harness.runner.commands.onStart = () => gate.promise;
  const starting = start();
  const { requests } = harness.runner;
  await waitFor('the start', () => requests.includes(`POST /vms/${id}/agent/commands`));
  await harness.call('DELETE', `/v1/runs/${id}`);
  gate.resolve();
  await starting;
  const count = () => requests.filter((one) => one === `GET /vms/${id}/agent/commands`).length;
  const before = count();
  await delay(500);
  assert.ok(count() - before <= 1);
});

function http2Respond(stream: ServerHttp2Stream, text: string): void {
  Object.getPrototypeOf(stream).respond.call(stream, { ':status': 200 });
  Object.getPrototypeOf(stream).end.call(stream, text);
}
