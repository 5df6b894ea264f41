import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KeptOutput, MAX_KEPT } from './kept-output.ts';

function read(output: KeptOutput): string {
  return output.pieces.map(({ text }) => text).join('');
}

test('pieces of one stream are joined, and the order of the streams stays', () => {
  const output = new KeptOutput();
  output.add('stdout', 'a');
  output.add('stdout', 'b');
  output.add('stderr', 'c');
  output.add('stdout', 'd');
  assert.deepEqual(
    output.pieces.map(({ stream, text }) => [stream, text]),
    [
      ['stdout', 'ab'],
      ['stderr', 'c'],
      ['stdout', 'd'],
    ],
  );
});

test('of endless output the newest part stays, and the rest is counted', () => {
  const output = new KeptOutput();
  const total = 4 * MAX_KEPT;
  for (let sent = 0; sent < total; sent += 1000)
    output.add(sent % 3000 === 0 ? 'stderr' : 'stdout', 'x'.repeat(1000));
  output.add('stdout', 'end');
  const kept = read(output);
  assert.ok(kept.length <= MAX_KEPT, String(kept.length));
  assert.ok(kept.endsWith('end'));
  assert.equal(output.droppedCount + kept.length, Math.ceil(total / 1000) * 1000 + 3);
});

test('one huge message is cut as well', () => {
  const output = new KeptOutput();
  output.add('stdout', `${'x'.repeat(3 * MAX_KEPT)}end`);
  assert.ok(read(output).length <= MAX_KEPT);
  assert.ok(read(output).endsWith('end'));
});

test('colours and titles are left out, also when they are cut in two', () => {
  const output = new KeptOutput();
  for (const part of ['\u001B[1;3', '1mred\u001B[0m \u001B]0;tit', 'le\u0007x\r\ny\u001B', '[Kz'])
    output.add('stdout', part);
  assert.equal(read(output), 'red x\nyz');
});

test('a sequence that never ends holds back only a little', () => {
  const output = new KeptOutput();
  output.add('stdout', `a\u001B]0;${'t'.repeat(1000)}`);
  assert.ok(read(output).startsWith('a'));
  assert.ok(read(output).length > 700);
});
