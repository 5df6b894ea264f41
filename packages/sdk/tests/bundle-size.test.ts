/** The size of the client in a page that imports all of it. */
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { rolldown } from 'rolldown';

const LIMIT_BYTES = 40_000;

test(`the client, minified and compressed, has less than ${LIMIT_BYTES} bytes, and loads nothing else`, async (t) => {
  const input = fileURLToPath(new URL('../src/index.ts', import.meta.url));
  const bundle = await rolldown({ input, platform: 'browser', logLevel: 'warn' });
  t.after(() => bundle.close());
  const { output } = await bundle.generate({ format: 'esm', minify: true, codeSplitting: false });
  const [chunk] = output;
  assert.equal(output.length, 1);
  assert.deepEqual(chunk.imports, [], 'it has no dependencies');
  assert.ok(!/["']node:/u.test(chunk.code), 'it imports no module of Node.js');
  const sizeBytes = gzipSync(chunk.code).length;
  t.diagnostic(`${sizeBytes} bytes`);
  assert.ok(sizeBytes < LIMIT_BYTES, `it has ${sizeBytes} bytes`);
});
