import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ImageBuildEvent } from '../../../../sdk/src/index.ts';
import { BuildLogLines, cleanOutput } from './build-log.ts';

let seq = 0;

function print(data: string, type: 'stdout' | 'stderr' = 'stdout'): ImageBuildEvent {
  seq += 1;
  return { type, seq, step: 0, data };
}

function step(text: string, cached = false): ImageBuildEvent {
  seq += 1;
  return { type: 'step', seq, step: 0, text, cached };
}

function texts(...events: ImageBuildEvent[]): string[] {
  const log = new BuildLogLines();
  for (const event of events) log.add(event);
  return log.lines.map(({ kind, text }) => `${kind}: ${text}`);
}

test('output is cut into lines wherever the events were cut', () => {
  assert.deepEqual(texts(print('one\ntw'), print('o\n\nthree'), step('RUN next')), [
    'stdout: one',
    'stdout: two',
    'stdout: ',
    'stdout: three',
    'step: RUN next',
  ]);
});

test('standard output and standard error keep their own open lines', () => {
  assert.deepEqual(texts(print('out'), print('err\n', 'stderr'), print('put\n')), [
    'stderr: err',
    'stdout: output',
  ]);
});

test('of a line that overwrites itself, the last state is shown', () => {
  assert.deepEqual(texts(print('10%\r50%\r100%\r\n')), ['stdout: 100%']);
});

test('a line without an end is cut, and the number of lines is bounded', () => {
  const log = new BuildLogLines();
  log.add(print('x'.repeat(10_000)));
  assert.equal(log.lines.length, 1);
  assert.equal(log.lines[0]?.text.length, 4001);
  log.add(print('y\n'.repeat(6000)));
  assert.equal(log.lines.length, 5000);
  assert.equal(log.dropped, 1001);
  assert.equal(new Set(log.lines.map(({ id }) => id)).size, 5000);
});

test('colours are left out, and hidden characters are shown', () => {
  assert.deepEqual(texts(print('\u001b[31mred\u001b[0m \u202egnp\u0000\tend\n')), [
    'stdout: red \\u202Egnp\\0\tend',
  ]);
});

test('the end of the output that an error quotes is cleaned, and keeps its lines', () => {
  assert.equal(
    cleanOutput('line 2: exit code 3; its last output:\n\u001b[1mbold\u001b[0m\n\u202egnp'),
    'line 2: exit code 3; its last output:\nbold\n\\u202Egnp',
  );
});
