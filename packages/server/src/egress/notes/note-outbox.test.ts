import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EgressNote } from '../../lib/protocol/egress-protocol.ts';
import { MAX_NOTES_PER_MESSAGE, type VmNote } from '../../lib/protocol/egress-messages.ts';
import { NoteOutbox } from './note-outbox.ts';

const NOTE: EgressNote = {
  event: 'credential.proxied',
  ts: '2026-01-01T00:00:00.000Z',
  data: { service: 'openai', method: 'GET', path: '/v1/models', status: 200 },
};

function open(options: { maxUnacknowledged?: number; durableTimeoutMs?: number } = {}) {
  const sent: { id: number; notes: VmNote[] }[] = [];
  const outbox = new NoteOutbox({ send: (id, notes) => sent.push({ id, notes }), ...options });
  return { outbox, sent };
}

test('notes of one moment are sent together, in order and in messages of bounded length', async () => {
  const { outbox, sent } = open();
  for (let index = 0; index < MAX_NOTES_PER_MESSAGE + 1; index += 1) outbox.offer(`vm-${index}`, NOTE);
  assert.equal(sent.length, 0);
  await new Promise(setImmediate);
  assert.deepEqual(
    sent.map(({ notes }) => notes.length),
    [MAX_NOTES_PER_MESSAGE, 1],
  );
  assert.equal(sent[1]?.notes[0]?.vmId, `vm-${MAX_NOTES_PER_MESSAGE}`);
});

test('a durable note waits for the acknowledgement of its own batch', async () => {
  const { outbox, sent } = open();
  let isDurable = false;
  const waiting = outbox.offerDurably('vm', NOTE).then(() => (isDurable = true));
  outbox.flush();
  outbox.acknowledge(99);
  await new Promise(setImmediate);
  assert.equal(isDurable, false);
  outbox.acknowledge(sent[0]?.id ?? -1);
  await waiting;
  assert.equal(isDurable, true);
});

test('a durable note without acknowledgement rejects after its time limit', async () => {
  const { outbox, sent } = open({ durableTimeoutMs: 20 });
  const waiting = outbox.offerDurably('vm', NOTE);
  outbox.flush();
  await assert.rejects(waiting, /longer than 20 ms/u);
  assert.equal(sent.length, 1);
});

test('when too many notes wait, new ones are rejected until some are acknowledged', async () => {
  const { outbox, sent } = open({ maxUnacknowledged: 2 });
  assert.ok(outbox.offer('vm', NOTE));
  assert.ok(outbox.offer('vm', NOTE));
  assert.equal(outbox.offer('vm', NOTE), false);
  await assert.rejects(outbox.offerDurably('vm', NOTE), /too many/u);
  outbox.flush();
  outbox.acknowledge(sent[0]?.id ?? -1);
  assert.ok(outbox.offer('vm', NOTE));
});
