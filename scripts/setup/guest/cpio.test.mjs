import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildCpio, DIRECTORY, EXECUTABLE } from './cpio.mjs';

/**
 * Reads an archive the way the kernel does.
 * @param {Buffer} archive
 */
function readCpio(archive) {
  const entries = [];
  for (let offset = 0; ;) {
    const field = (/** @type {number} */ index) =>
      Number.parseInt(archive.toString('latin1', offset + 6 + index * 8, offset + 14 + index * 8), 16);
    assert.equal(archive.toString('latin1', offset, offset + 6), '070701');
    const [mode, size, nameSize] = [field(1), field(6), field(11)];
    const name = archive.toString('utf8', offset + 110, offset + 110 + nameSize - 1);
    const start = offset + Math.ceil((110 + nameSize) / 4) * 4 - (offset % 4);
    if (name === 'TRAILER!!!') return entries;
    entries.push({ name, mode, content: archive.toString('utf8', start, start + size) });
    offset = Math.ceil((start + size) / 4) * 4;
  }
}

test('a reader of the format finds the entries that were written, for all lengths', () => {
  const contents = ['', 'a', 'ab', 'abc', 'abcd', 'abcde'];
  const entries = [
    { name: 'dev', mode: DIRECTORY },
    ...contents.map((content, index) => ({
      name: `file${'x'.repeat(index)}`,
      mode: EXECUTABLE,
      content: Buffer.from(content),
    })),
  ];
  const archive = buildCpio(entries);
  assert.equal(archive.length % 4, 0);
  assert.deepEqual(
    readCpio(archive).map(({ name, mode, content }) => [name, mode, content]),
    entries.map((entry) => [entry.name, entry.mode, 'content' in entry ? entry.content.toString() : '']),
  );
});

test('the same entries give the same bytes', () => {
  const entries = [{ name: 'init', mode: EXECUTABLE, content: Buffer.from('agent') }];
  assert.deepEqual(buildCpio(entries), buildCpio(entries));
});
