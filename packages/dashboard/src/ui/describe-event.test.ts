import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EVENT_TYPES, EVENTS } from '../../../contract/src/events/events.ts';
import { describeEvent, toPlainSentence } from './describe-event.ts';

const tell = (type: string, data: Record<string, unknown> = {}): string =>
  toPlainSentence(describeEvent({ type, data }).sentence);

const RUN = 'run0123456789abcdef0123';

test('every type of event has a sentence of its own, also without its data', () => {
  const sentences = EVENT_TYPES.map((type) => tell(type));
  assert.equal(new Set(sentences).size, EVENT_TYPES.length, sentences.join('\n'));
  for (const [index, type] of EVENT_TYPES.entries()) {
    assert.notEqual(sentences[index], type);
    assert.doesNotMatch(sentences[index] ?? '', /undefined|NaN|\[object/u);
  }
});

test('a type of a later service is shown as it is', () => {
  assert.equal(tell('sandbox.teleported', { to: 'mars' }), 'sandbox.teleported');
  assert.equal(tell('constructor'), 'constructor');
});

test('the start of a sandbox says from what it was made', () => {
  const shape = { image: 'coppice/base:1', vcpus: 2, mem_mib: 512, disk_mib: 1024 };
  assert.equal(tell('sandbox.created', shape), 'Created from coppice/base:1 with 2 CPU, 512 MiB');
  assert.equal(
    tell('sandbox.created', { ...shape, parent: RUN }),
    `Created as a fork of ${RUN} with 2 CPU, 512 MiB`,
  );
  assert.match(
    tell('sandbox.created', { ...shape, parent: RUN, snapshot_id: 'snap1' }),
    /^Created from the snapshot snap1 of run/u,
  );
});

test('a digest is left out', () => {
  const image = `coppice/base:1@sha256:${'fc01b6676a8d'.repeat(5)}aee2`;
  assert.equal(tell('sandbox.created', { image }), 'Created from coppice/base:1');
});

test('an end says why, and how long the sandbox ran', () => {
  const data = { reason: 'guest_panic', uptime_ms: 4021, cpu_ms: 800, mem_peak_bytes: 2 ** 20 * 70 };
  assert.ok(EVENTS['sandbox.failed'].safeParse(data).success);
  assert.equal(
    tell('sandbox.failed', data),
    'Failed because its kernel panicked. It ran for 4 s and used up to 70 MiB of memory.',
  );
  assert.equal(tell('sandbox.destroyed', { reason: 'solar_flare' }), 'Destroyed because solar flare.');
  assert.equal(tell('sandbox.destroyed', { reason: 'constructor' }), 'Destroyed because constructor.');
});

test('a command that failed differs from one that succeeded and from one whose end was not seen', () => {
  const tones = [0, 1, null].map(
    (exit_code) =>
      describeEvent({ type: 'command.exited', data: { exit_code, command_id: 'c', duration_ms: 1 } }).tone,
  );
  assert.deepEqual(tones, ['good', 'bad', 'warn']);
});

test('refused connections name the first target and count the rest', () => {
  const refusals = [
    { domain: 'evil.example', port: 443, reason: 'not_allowed', count: 3 },
    { ip: '10.0.0.1', reason: 'private_address', count: 1 },
  ];
  assert.equal(
    tell('network.blocked', { count: 4, refusals, left_out: 0 }),
    'Network: 4 connections refused, to evil.example:443 (not allowed by the policy) and 1 other kind',
  );
});

test('links lead to pages of the dashboard only, for any name', () => {
  const hostile = ['../../account', 'javascript:alert(1)', '//evil.example', 'a b?c#d'];
  for (const name of hostile)
    for (const [type, field] of [
      ['sandbox.forked', 'child'],
      ['disk.attached', 'disk'],
      ['snapshot.created', 'snapshot_id'],
      ['image.build_ended', 'build_id'],
    ] as const) {
      const { sentence } = describeEvent({ type, data: { [field]: name } });
      const hrefs = sentence.flatMap((part) => (typeof part === 'object' && part.href ? [part.href] : []));
      assert.equal(hrefs.length, 1, type);
      const target = new URL(hrefs[0] ?? '', 'https://coppice.example/sandboxes');
      assert.equal(target.origin, 'https://coppice.example');
      assert.match(target.pathname, /^\/(?:sandboxes|disks|snapshots|images)/u);
    }
});
