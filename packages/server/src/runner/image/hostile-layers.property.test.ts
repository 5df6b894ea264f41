/** Archives that no tool writes, through reader and tree: each soon ends in an image of sound paths or in a refusal. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { readLayers } from './layers/flatten.ts';
import { LayerError } from '../../lib/tar/layer-error.ts';
import { MAX_NAME_BYTES, MAX_PATH_BYTES } from '../../lib/tar/layer-path.ts';
import { TAR_BLOCK_BYTES, encodePaxRecord, encodeTarHeader, padToBlock } from '../../lib/tar/tar-format.ts';
import { makeScratchDirectory } from './testing/scratch-directory.ts';

const LIMITS = { maxEntries: 500, maxContentBytes: 100_000, maxMetadataBytes: 200_000 };
const WHOLE_TEST_MS = 30_000;
const ONE_RUN_MS = 1000;
const END = Buffer.alloc(2 * TAR_BLOCK_BYTES);

const component = fc.constantFrom(
  'a',
  'b',
  's',
  '.',
  '..',
  '',
  '.wh.a',
  '.wh.',
  '.wh..',
  '.wh...',
  '.wh..wh..opq',
  '.wh..wh.plnk',
  'ü',
  '\0',
  'x'.repeat(MAX_NAME_BYTES),
  'y'.repeat(MAX_NAME_BYTES + 1),
);
const name = fc
  .array(component, { maxLength: 20 })
  .chain((parts) => fc.constantFrom('', '/', '//', '../').map((prefix) => `${prefix}${parts.join('/')}`));
const size = fc.oneof(
  { weight: 5, arbitrary: fc.nat(2000) },
  fc.constantFrom(-1, 2 ** 33, Number.MAX_SAFE_INTEGER),
);
const typeFlag = fc.constantFrom('0', '\0', '1', '2', '3', '4', '5', '6', '7', 'g', 'x', 'L', 'K', 'S', 'Z');

const extension = fc
  .array(
    fc.tuple(
      fc.constantFrom(
        'path',
        'linkpath',
        'size',
        'uid',
        'mtime',
        'SCHILY.xattr.user.a',
        'SCHILY.xattr.trusted.overlay.opaque',
      ),
      fc.oneof(name, size.map(String), fc.constantFrom('', '1e9', '-', '0x10')),
    ),
    { maxLength: 4 },
  )
  .map((records) => {
    const data = Buffer.concat(records.map(([key, value]) => encodePaxRecord(key, Buffer.from(value))));
    return block({ typeFlag: 'x', name: 'PaxHeader', sizeBytes: data.length }, data);
  });

const entry = fc
  .record({ typeFlag, name, linkName: name, sizeBytes: size, hasContent: fc.boolean() })
  .map(({ hasContent, ...header }) =>
    block(
      header,
      hasContent && header.sizeBytes < 10_000
        ? Buffer.alloc(Math.max(header.sizeBytes, 0), 'c')
        : Buffer.alloc(0),
    ),
  );

function block(
  values: { typeFlag: string; name: string; sizeBytes: number; linkName?: string },
  content: Buffer,
): Buffer {
  const rest = { mode: 0o644, uid: 0, gid: 0, mtimeSeconds: 0, deviceMajor: 0, deviceMinor: 0 };
  const header = encodeTarHeader({ linkName: '', ...rest, ...values });
  return Buffer.concat([header, content, Buffer.alloc(padToBlock(content.length) - content.length)]);
}

const layer = fc
  .tuple(fc.array(fc.oneof({ weight: 3, arbitrary: entry }, extension), { maxLength: 25 }), fc.boolean())
  .map(([blocks, isEnded]) => Buffer.concat([...blocks, ...(isEnded ? [END] : [])]));

test('hostile layers soon end in an image of sound paths or in a refusal that names the layer', async () => {
  await using scratch = await makeScratchDirectory();
  let images = 0;
  let refusals = 0;
  const layers = fc.array(layer, { minLength: 1, maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(layers, async (contents) => {
      const paths = contents.map((_, index) => join(scratch.path, `${index}.tar`));
      for (const [index, content] of contents.entries()) await writeFile(paths[index]!, content);
      const started = performance.now();
      try {
        const tree = await readLayers(paths, LIMITS, AbortSignal.timeout(ONE_RUN_MS));
        for (const { path } of tree.walk()) assertSound(path);
        images++;
      } catch (error) {
        assert(error instanceof LayerError, String(error));
        assert.match(error.message, /^layer [1-3] of [1-3]: /u);
        assert.ok(error.message.length < 500, error.message);
        refusals++;
      }
      assert.ok(performance.now() - started < ONE_RUN_MS);
    }),
    { numRuns: 800, interruptAfterTimeLimit: WHOLE_TEST_MS },
  );
  assert.ok(images > 20 && refusals > 20, `${images} images, ${refusals} refusals`);
});

function assertSound(path: string): void {
  if (path === '') return;
  assert.ok(path.length <= MAX_PATH_BYTES && !path.includes('\0'), path);
  for (const part of path.split('/')) {
    assert.ok(part !== '' && part !== '.' && part !== '..' && part.length <= MAX_NAME_BYTES, path);
  }
}
