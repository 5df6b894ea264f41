import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { JsonLineClient, type LineEvent } from './json-line-client.ts';

function connect() {
  const input = new PassThrough();
  const output = new PassThrough();
  const events: LineEvent[] = [];
  const client = new JsonLineClient({
    input,
    output,
    timeoutMs: 100,
    onEvent: (event) => events.push(event),
  });
  return { input, output, events, client };
}

test('answers find their requests in any order; errors and events are told apart', async () => {
  const { input, output, events, client } = connect();
  const [first, second, third] = [1, 2, 3].map((value) => client.ask('asking', { op: 'x', value }));
  input.write(
    '{"id":3,"error":"refused"}\n{"event":"changed","what":1}\n{"id":2,"result":null}\n{"id":1,"res',
  );
  input.write('ult":[7]}\n{"id":99,"result":"of nobody"}\n');
  await assert.rejects(third!, { code: 'internal', message: 'refused' });
  assert.deepEqual([await first, await second], [[7], null]);
  assert.deepEqual(events, [{ event: 'changed', what: 1 }]);
  const sent = String(output.read())
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown);
  assert.deepEqual(
    sent,
    [1, 2, 3].map((value) => ({ id: value, op: 'x', value })),
  );
});

test('an end, a malformed line and a missing answer are errors, at once or at the deadline', async () => {
  const ended = connect();
  const asked = ended.client.ask('asking', {});
  ended.input.end();
  await assert.rejects(asked, { code: 'internal', message: 'it ended' });
  await assert.rejects(ended.client.ask('asking again', {}), { message: 'asking again: it ended' });
  assert.equal(await ended.client.ended, 'it ended');
  const broken = connect();
  const unheard = broken.client.ask('asking', {});
  broken.input.write('{"id":"1"}\n');
  await assert.rejects(unheard, { message: 'its answer is malformed' });
  await assert.rejects(connect().client.ask('asking', {}), { name: 'DeadlineError' });
});
