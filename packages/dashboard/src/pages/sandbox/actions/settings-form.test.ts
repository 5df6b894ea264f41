import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SandboxInfo } from '../../../../../sdk/src/index.ts';
import { parseSeconds, writeSeconds } from './duration-text.ts';
import { fillSettings, readPairs, readSettings } from './settings-form.ts';

const RECORD = {
  name: 'build',
  timeout: 5400,
  maxLifetime: null,
  endsAt: null,
  labels: { job: 'nightly', empty: '' },
  autoHibernate: false,
} as unknown as SandboxInfo;

test('a form that was not changed has no changes', () => {
  assert.deepEqual(readSettings(fillSettings(RECORD), RECORD), { changes: {}, errors: {} });
});

test('only changed fields are sent, and empty ones clear their setting', () => {
  const record = { ...RECORD, maxLifetime: 60, endsAt: '2026-11-27T12:00:00.000Z' };
  const form = { ...fillSettings(record), name: '', maxLifetime: ' ', endsAt: '', timeout: '0' };
  assert.deepEqual(readSettings(form, record), {
    changes: { name: null, maxLifetime: null, expiresAt: null, timeout: 0 },
    errors: {},
  });
});

test('an end is read in the time zone of the reader', () => {
  const { changes } = readSettings({ ...fillSettings(RECORD), endsAt: '2026-11-28T09:30' }, RECORD);
  assert.equal((changes.expiresAt as Date).getTime(), new Date(2026, 10, 28, 9, 30).getTime());
});

test('times that cannot be read are errors of their fields', () => {
  const form = { ...fillSettings(RECORD), timeout: 'soon', maxLifetime: '0' };
  assert.deepEqual(Object.keys(readSettings(form, RECORD).errors), ['timeout', 'maxLifetime']);
});

test('labels are lines of names and values', () => {
  const form = { ...fillSettings(RECORD), labels: 'a=1=2\n\n b \n__proto__=x' };
  assert.deepEqual(Object.entries(readSettings(form, RECORD).changes.labels ?? {}), [
    ['a', '1=2'],
    ['b', ''],
    ['__proto__', 'x'],
  ]);
  assert.match(readPairs('=x').error ?? '', /no name/u);
  assert.match(readPairs('a=1\na=2').error ?? '', /twice/u);
});

test('durations are read as they are written', () => {
  for (const seconds of [0, 1, 90, 3600, 5400, 86_400, 90_061])
    assert.equal(parseSeconds(writeSeconds(seconds)), seconds);
  assert.equal(parseSeconds('300'), 300);
  assert.equal(parseSeconds('2H 30m'), 9000);
  for (const text of ['', 'x', '1y', '-5', '1.5h', '5 5']) assert.equal(parseSeconds(text), undefined, text);
});
