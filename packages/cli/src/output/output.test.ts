import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { CoppiceError } from '../../../sdk/src/index.ts';
import { describeFailure } from './failure.ts';
import { formatAge, formatBytes, formatLabels, formatSeconds, formatUntil, formatUsd } from './quantities.ts';
import { formatFields, formatTable } from './table.ts';
import { toVisible, toVisibleJson } from './visible-text.ts';

const COLUMNS = [
  { head: 'NAME', text: ({ name }: { name: string }) => name, colour: () => 'green' as const },
  { head: 'SIZE', text: ({ size }: { name: string; size: number }) => String(size) },
];

test('a table aligns its columns, and has only its heads without items', () => {
  const items = [
    { name: 'a', size: 1 },
    { name: 'longer', size: 22 },
  ];
  assert.equal(formatTable(items, COLUMNS, { colour: false }), 'NAME    SIZE\na       1\nlonger  22\n');
  assert.equal(formatTable([], COLUMNS, { colour: false }), 'NAME  SIZE\n');
});

test('colours surround texts only where they are allowed', () => {
  const table = formatTable([{ name: 'a', size: 1 }], COLUMNS, { colour: true });
  assert.ok(table.includes('\u001b[32ma\u001b[0m'), table);
});

test('no text of a guest or of another person controls the terminal', () => {
  const hostile = '\u001b]0;title\u0007\r\n\u009b31m\u202e\u200f\u061c';
  assert.equal(toVisible(hostile), '\\u{1b}]0;title\\u{7}\\u{d}\\u{a}\\u{9b}31m\\u{202e}\\u{200f}\\u{61c}');
  for (const indent of [0, 2]) {
    const json = toVisibleJson({ [hostile]: hostile }, indent);
    assert.equal(toVisible(json.replaceAll('\n', '')), json.replaceAll('\n', ''));
    assert.deepEqual(JSON.parse(json), { [hostile]: hostile });
  }
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (name) => {
      const lines = formatTable([{ name, size: 1 }], COLUMNS, { colour: false }).split('\n');
      assert.equal(lines.length, 3);
      // oxlint-disable-next-line no-control-regex
      assert.doesNotMatch(lines.join(''), /[\u0000-\u001f\u007f-\u009f]/u);
      assert.equal(formatFields([['name', name || 'x']]).split('\n').length, 2);
    }),
  );
});

test('fields without a value are left out', () => {
  assert.equal(
    formatFields([
      ['id', 'x'],
      ['parent', null],
      ['labels', ''],
      ['size', 0],
    ]),
    'id:   x\nsize: 0\n',
  );
});

test('quantities are short', () => {
  assert.deepEqual([0, 1023, 1536, 5 * 1024 ** 3, 200 * 1024].map(formatBytes), [
    '0 B',
    '1023 B',
    '1.5 KiB',
    '5.0 GiB',
    '200 KiB',
  ]);
  assert.deepEqual([-5, 90, 600, 10_000, 900_000].map(formatSeconds), [
    '0 s',
    '90 s',
    '10 min',
    '3 h',
    '10 d',
  ]);
  const now = Date.parse('2026-01-01T00:10:00Z');
  assert.equal(formatAge('2026-01-01T00:00:00Z', now), '10 min');
  assert.equal(formatUntil('2026-01-01T00:11:00Z', now), '60 s');
  assert.equal(formatUntil(null, now), '');
  assert.equal(formatUsd(123.4567), '1.2346 USD');
  assert.equal(formatLabels({ a: '1', b: '' }), 'a=1,b=');
});

test('a failure is one line with the next step, and with the id of the request if the service failed', () => {
  const fields = { status: 0, code: 'connection_refused' } as const;
  assert.match(
    describeFailure(new CoppiceError('no connection', fields)),
    /^no connection; check that the service runs/u,
  );
  const broken = { status: 500, code: 'internal', requestId: 'req1', detail: 'it\nbroke' } as const;
  assert.equal(describeFailure(new CoppiceError('HTTP 500', broken)), 'it\\u{a}broke (request req1)');
});
