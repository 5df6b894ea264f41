import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AUDIT_EVENT_NAMES } from '../../../../contract/src/audit/audit.ts';
import { describeSandboxEntry } from './sandbox-sentences.ts';
import { toPlainText } from './sentence.ts';

const describe = (event: string, data: Record<string, unknown> = {}): string =>
  toPlainText(describeSandboxEntry({ event, data }));

test('every event of the contract has a sentence of its own, also without its fields', () => {
  for (const event of AUDIT_EVENT_NAMES) {
    const text = describe(event);
    assert.doesNotMatch(text, /undefined|\[object|NaN/u, event);
    assert.ok(!text.startsWith(event), `${event} has no sentence`);
  }
});

test('sentences name what an entry is about', () => {
  const cases: readonly (readonly [string, Record<string, unknown>, string])[] = [
    ['exec.start', { command: 'npm test' }, 'Ran npm test'],
    [
      'exec.exit',
      { command: 'npm test', exit_code: 1, duration_ms: 65_000 },
      'Exit code 1 after 1 min 5 s: npm test',
    ],
    ['exec.exit', { command: 'x', exit_code: null }, 'No exit code: x'],
    [
      'network.blocked',
      { domain: 'evil.example', ip: '192.0.2.1', port: 443, reason: 'not_allowed', count: 3 },
      'Refused 3 connections to evil.example:443: no allow rule matches',
    ],
    ['network.blocked', { reason: 'a_new_one' }, 'Refused a connection to an unknown address: a_new_one'],
    [
      'network.blocked',
      { ip: '10.0.0.1', reason: 'constructor' },
      'Refused a connection to 10.0.0.1: constructor',
    ],
    [
      'file.upload',
      { path: 'a.txt', size: 10, complete: false },
      'Uploaded a.txt (10 B); it failed, and may be done in part',
    ],
    ['file.remove', { path: '/tmp/x', recursive: true }, 'Removed /tmp/x and everything in it'],
    ['settings.changed', { name: 'a', env: ['A'] }, 'Changed name and env of the sandbox'],
    [
      'credentials.changed',
      { credentials: [{ service: 'github' }, { service: 'npm' }, null] },
      'Granted credentials for github, npm and unknown',
    ],
    ['sandbox.destroyed', { reason: 'idle_timeout', uptime_ms: 1000 }, 'Destroyed as it was idle after 1 s'],
    [
      'sandbox.created',
      { image: 'a', vcpus: 1, mem_mib: 512, parent: 'run1', snapshot_id: 'snap1' },
      'Created from the snapshot snap1, with 1 CPU and 512 MiB',
    ],
    [
      'sandbox.created',
      { image: `coppice/base:1@sha256:${'0'.repeat(64)}`, vcpus: 2, mem_mib: 2048, network: {} },
      'Created from the image coppice/base:1, with 2 CPUs and 2 GiB; its network is restricted',
    ],
    ['terminal.opened', {}, 'Opened a terminal'],
  ];
  for (const [event, data, text] of cases) assert.equal(describe(event, data), text);
});

test('an unknown event shows its name and its fields', () => {
  assert.equal(describe('guest.moved', { to: 'a' }), 'guest.moved {"to":"a"}');
  assert.equal(describe('__proto__', {}), '__proto__ {}');
});

test('values are parts of their own, with characters that cannot be seen as escapes', () => {
  const sentence = describeSandboxEntry({
    event: 'exec.start',
    data: { command: 'echo \u202Etxt.exe\n\u0000\u200B' },
  });
  assert.deepEqual(sentence, ['Ran ', { value: 'echo \\u202Etxt.exe\\n\\0\\u200B' }]);
});

test('a long value is cut between characters', () => {
  const valueOf = (command: string) => describeSandboxEntry({ event: 'exec.start', data: { command } })[1];
  assert.deepEqual(valueOf('a'.repeat(240)), { value: 'a'.repeat(240) });
  assert.deepEqual(valueOf('a'.repeat(241)), { value: `${'a'.repeat(240)}…` });
  assert.deepEqual(valueOf(`${'a'.repeat(239)}😀`), { value: `${'a'.repeat(239)}…` });
});
