import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CommandOutputQuery } from '@coppice/contract';
import type { KeptOutput } from './kept-output.ts';
import { readPage } from './output-page.ts';

const EURO = Buffer.from('€');
const EXIT: KeptOutput = { type: 'exit', exit_code: 0, timed_out: false };

/** Output of one stream after the other, from `from` on; a number is a gap of so many bytes. */
async function* output(
  from: number,
  ...parts: (Buffer | string | number | KeptOutput)[]
): AsyncGenerator<KeptOutput> {
  let offset = from;
  for (const part of parts) {
    if (typeof part === 'number') yield { type: 'dropped', offset, next_offset: (offset += part) };
    else if (typeof part === 'object' && 'type' in part) yield part;
    else {
      const data = Buffer.from(part);
      yield { type: 'stdout', offset, data };
      offset += data.length;
    }
  }
}

const query = (more: Partial<CommandOutputQuery> = {}): CommandOutputQuery => ({
  offset: 0,
  limit: 100,
  encoding: 'utf8',
  ...more,
});

test('adjacent output of one stream is one part', async () => {
  const page = await readPage(output(0, 'a', 'b', 'c'), query());
  assert.deepEqual(page.output, [{ type: 'stdout', data: 'abc', offset: 0 }]);
});

test('a page waits for the rest of a character, unless the command has ended or the page is full', async () => {
  const begun = EURO.subarray(0, 2);
  const waiting = await readPage(output(0, 'a', begun), query());
  assert.deepEqual([waiting.output[0]?.data, waiting.next_offset], ['a', 1]);
  const empty = await readPage(output(1, begun), query({ offset: 1 }));
  assert.deepEqual([empty.output, empty.next_offset], [[], 1]);
  const ended = await readPage(output(1, begun, EXIT), query({ offset: 1 }));
  assert.deepEqual([ended.output[0]?.data, ended.next_offset, ended.is_last], ['\uFFFD', 3, true]);
  const full = await readPage(output(1, begun), query({ offset: 1, limit: 2 }));
  assert.deepEqual([full.output[0]?.data, full.next_offset], ['\uFFFD', 3]);
});

test('a character does not continue after a gap', async () => {
  const page = await readPage(output(0, EURO.subarray(0, 1), 10, EURO.subarray(1), 'b', EXIT), query());
  assert.deepEqual(
    page.output.map(({ data, offset }) => [data, offset]),
    [
      ['\uFFFD', 0],
      ['\uFFFD\uFFFDb', 11],
    ],
  );
  assert.deepEqual([page.dropped_bytes, page.next_offset], [10, 14]);
});

test('a page has a limit of bytes, and of parts', async () => {
  const page = await readPage(output(5, 'abc', 'def'), query({ offset: 5, limit: 4 }));
  assert.deepEqual([page.output[0]?.data, page.next_offset, page.is_last], ['abcd', 9, false]);
  async function* alternating(): AsyncGenerator<KeptOutput> {
    for (let offset = 0; ; offset += 1)
      yield { type: offset % 2 === 0 ? 'stdout' : 'stderr', offset, data: Buffer.from('x') };
  }
  const many = await readPage(alternating(), query({ limit: 1 << 20 }));
  assert.equal(many.output.length, 4096);
  assert.equal(many.next_offset, 4096);
});
