import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { TemplateCatalogue } from './template-catalogue.ts';

const SHAPE = { accelerator: 'tcg', vcpus: 1, memMiB: 256, diskMiB: 64 } as const;
const BINDING = {
  image: { digest: 'sha256:aa', preparedAt: new Date('2026-01-01T00:00:00Z') },
  shape: SHAPE,
};

function makeDirectory(context: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-catalogue-'));
  context.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

function addTemplate(directory: string, catalogue: TemplateCatalogue, key: string): void {
  mkdirSync(join(directory, key));
  writeFileSync(join(directory, key, 'ram'), Buffer.alloc(100_000));
  writeFileSync(join(directory, key, 'devices'), 'x');
  catalogue.writeRecord(join(directory, key), BINDING);
  catalogue.add(key);
}

test('the next process finds a template with its bindings', (context) => {
  const directory = makeDirectory(context);
  addTemplate(directory, TemplateCatalogue.open(directory, 'now'), 'a');
  const [found] = TemplateCatalogue.open(directory, 'now').values();
  assert.ok(found !== undefined && found.sizeBytes >= 100_000);
  assert.deepEqual(
    [found.key, found.imageDigest, found.imagePreparedAt, found.staleReason],
    ['a', 'sha256:aa', '2026-01-01T00:00:00.000Z', undefined],
  );
  assert.deepEqual(TemplateCatalogue.open(directory, 'now').shapesOf('sha256:aa'), [SHAPE]);
});

test('a template whose record has another version serves no create', (context) => {
  const directory = makeDirectory(context);
  addTemplate(directory, TemplateCatalogue.open(directory, 'now'), 'a');
  const path = join(directory, 'a', 'template.json');
  writeFileSync(path, readFileSync(path, 'utf8').replace('"version":2', '"version":1'));
  const catalogue = TemplateCatalogue.open(directory, 'now');
  assert.deepEqual([catalogue.has('a'), catalogue.shapesOf('sha256:aa')], [false, []]);
});

test('a template made with other versions, or an unreadable one, serves no create', (context) => {
  const directory = makeDirectory(context);
  addTemplate(directory, TemplateCatalogue.open(directory, 'before'), 'old');
  mkdirSync(join(directory, 'without-record'));
  addTemplate(directory, TemplateCatalogue.open(directory, 'now'), 'without-state');
  rmSync(join(directory, 'without-state', 'devices'));
  const catalogue = TemplateCatalogue.open(directory, 'now');
  const reasons = Array.from(catalogue.values(), ({ key, staleReason }) => [key, staleReason]);
  assert.deepEqual(Object.fromEntries(reasons), {
    old: 'QEMU, kernel or agent has changed',
    'without-record': 'it cannot be read',
    'without-state': 'it cannot be read',
  });
  for (const [key] of reasons) assert.equal(catalogue.has(key!), false);
});

test('an evicted template is immediately not found, and its files are removed', async (context) => {
  const directory = makeDirectory(context);
  const catalogue = TemplateCatalogue.open(directory, 'now');
  addTemplate(directory, catalogue, 'a');
  const gone = catalogue.evict('a');
  assert.deepEqual([catalogue.has('a'), readdirSync(directory)], [false, ['a.evicted']]);
  await gone;
  assert.deepEqual(readdirSync(directory), []);
});

test('unfinished builds and evictions of an earlier process are removed', (context) => {
  const directory = makeDirectory(context);
  for (const name of ['a.building', 'b.evicted']) mkdirSync(join(directory, name));
  assert.deepEqual([...TemplateCatalogue.open(directory, 'now').values()], []);
  assert.deepEqual(readdirSync(directory), []);
});
