/** Packs layers with the real tar2sqfs and reads them back with sqfs2tar of the same tools. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { open, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { test } from 'node:test';
import { writeTar, type LayerEntry } from '../../../../../../e2e/fixtures/images/oci-layout.ts';
import { readLayers, writeFlatTar } from './flatten.ts';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { runProcess } from '../../host/run-process.ts';
import { makeScratchDirectory } from '../testing/scratch-directory.ts';
import { squashfsArguments } from './squashfs.ts';
import { TarWriter } from '../../../lib/tar/tar-writer.ts';
import { TAR_BLOCK_BYTES, encodePaxRecord, encodeTarHeader } from '../../../lib/tar/tar-format.ts';
import { readTar, type TarEntry } from '../../../lib/tar/tar-reader.ts';
import { TEST_LIMITS } from '../testing/tree-entries.ts';

const TIMEOUT_MS = 30_000;
const { signal } = new AbortController();

interface FlatEntry extends TarEntry {
  content: Buffer;
}

async function makeSquashfs(layerPaths: readonly string[], outputPath: string): Promise<void> {
  const tree = await readLayers(layerPaths, TEST_LIMITS, signal);
  await runProcess({
    command: 'tar2sqfs',
    args: squashfsArguments(outputPath),
    timeoutMs: TIMEOUT_MS,
    feed: (stdin) =>
      writeFlatTar(tree, layerPaths, new TarWriter((chunk) => writeTo(stdin, chunk)), { signal }),
  });
}

function writeTo(stream: Writable, chunk: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(chunk, (error) => (error ? reject(error) : resolve()));
  });
}

/** Returns the entries of a squashfs of these layers by path; the root is "". */
async function flatten(layers: readonly (readonly LayerEntry[] | string)[]): Promise<Map<string, FlatEntry>> {
  await using scratch = await makeScratchDirectory();
  const paths: string[] = [];
  for (const [index, layer] of layers.entries()) {
    const path = typeof layer === 'string' ? layer : join(scratch.path, `${index}.tar`);
    if (typeof layer !== 'string') await writeTar(path, layer);
    paths.push(path);
  }
  const image = join(scratch.path, 'image.squashfs');
  await makeSquashfs(paths, image);
  return await readSquashfs(image, scratch.path);
}

async function readSquashfs(image: string, directory: string): Promise<Map<string, FlatEntry>> {
  const path = join(directory, 'back.tar');
  execFileSync('sh', ['-c', 'sqfs2tar --root-becomes . "$1" > "$2"', 'sh', image, path]);
  const bytes = await readFile(path);
  await using file = await open(path);
  const found = new Map<string, FlatEntry>();
  for await (const entry of readTar(file)) {
    const content = bytes.subarray(entry.dataOffset, entry.dataOffset + entry.sizeBytes);
    found.set(entry.name.replace(/^\.\//u, '').replace(/\/$/u, ''), { ...entry, content });
  }
  return found;
}

test('owners, modes, times, links, devices and attributes come out as they went in', async () => {
  const mtime = new Date('2023-04-05T06:07:08Z');
  const flat = await flatten([
    [
      { path: './', mode: 0o751, uid: 3 },
      { path: 'tmp/', mode: 0o1777 },
      { path: 'tmp/setuid', content: 'hello', mode: 0o4755, uid: 1000, gid: 2_500_000, mtime },
      { path: 'tmp/setgid', content: '', mode: 0o2711 },
      { path: 'link', type: 'symlink', target: '../not/../resolved/./at/all' },
      { path: 'null', type: 'character-device', mode: 0o666, deviceMajor: 1, deviceMinor: 3 },
      { path: 'disk', type: 'block-device', deviceMajor: 259, deviceMinor: 70_000 },
      { path: 'fifo', type: 'fifo', mode: 0o600 },
      {
        path: 'attributes',
        xattrs: { 'user.note': 'grüße', 'security.capability': '\u0001\u0000\u0000\u0002 \u0000' },
      },
      { path: 'acl', xattrs: { 'system.posix_acl_default': 'x' } },
    ],
  ]);
  assert.deepEqual([flat.get('')?.mode, flat.get('')?.uid], [0o751, 3]);
  assert.equal(flat.get('tmp')?.mode, 0o1777);
  const setuid = flat.get('tmp/setuid');
  assert.deepEqual([setuid?.mode, setuid?.uid, setuid?.gid], [0o4755, 1000, 2_500_000]);
  assert.equal(setuid?.mtimeSeconds, mtime.getTime() / 1000);
  assert.equal(setuid?.content.toString(), 'hello');
  assert.equal(flat.get('tmp/setgid')?.mode, 0o2711);
  assert.equal(flat.get('link')?.linkName, '../not/../resolved/./at/all');
  assert.deepEqual(
    [flat.get('null')?.type, flat.get('null')?.deviceMajor, flat.get('null')?.deviceMinor],
    ['character', 1, 3],
  );
  assert.deepEqual(
    [flat.get('disk')?.type, flat.get('disk')?.deviceMajor, flat.get('disk')?.deviceMinor],
    ['block', 259, 70_000],
  );
  assert.equal(flat.get('fifo')?.type, 'fifo');
  assert.deepEqual([...(flat.get('attributes')?.xattrs.keys() ?? [])].sort(), [
    'security.capability',
    'user.note',
  ]);
  assert.equal(flat.get('attributes')?.xattrs.get('user.note')?.toString(), 'grüße');
  assert.equal(flat.get('acl')?.xattrs.size, 0);
});

test('names that are not UTF-8 and binary capabilities survive', async () => {
  await using scratch = await makeScratchDirectory();
  const capability = Buffer.from([1, 0, 0, 2, 0x80, 0x20, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 10, 0, 0, 0, 0]);
  const name = Buffer.from([0x61, 0xff, 0xfe, 0x0a, 0x22, 0x5c]).toString('latin1');
  const header = {
    name,
    typeFlag: '0',
    mode: 0o755,
    uid: 0,
    gid: 0,
    mtimeSeconds: 0,
    sizeBytes: 0,
    linkName: '',
    deviceMajor: 0,
    deviceMinor: 0,
  };
  const record = encodePaxRecord('SCHILY.xattr.security.capability', capability);
  const extension = encodeTarHeader({ ...header, name: 'x', typeFlag: 'x', sizeBytes: record.length });
  const padding = Buffer.alloc(TAR_BLOCK_BYTES - record.length);
  const path = join(scratch.path, 'layer.tar');
  await writeFile(path, Buffer.concat([extension, record, padding, encodeTarHeader(header)]));
  const flat = await flatten([path]);
  assert.deepEqual(flat.get(name)?.xattrs.get('security.capability'), capability);
});

test('long names, deep paths and long targets survive', async () => {
  const deep = `${'verzeichnis-mit-längerem-namen/'.repeat(20)}${'ü'.repeat(120)}`;
  const flat = await flatten([
    [
      { path: deep, content: 'deep' },
      { path: 'link', type: 'symlink', target: deep },
      { path: 'hard', type: 'link', target: deep },
    ],
  ]);
  const bytes = Buffer.from(deep).toString('latin1');
  assert.equal(flat.get('link')?.linkName, bytes);
  const types = new Set([flat.get(bytes)?.type, flat.get('hard')?.type]);
  assert.deepEqual(types, new Set(['file', 'hardlink']));
  assert([...flat.values()].some((entry) => entry.content.toString() === 'deep'));
});

test('layers are merged: whiteouts, opaque directories, replaced targets of hard links', async () => {
  const flat = await flatten([
    [
      { path: 'a/' },
      { path: 'a/gone', content: '1' },
      { path: 'a/stays', content: '2' },
      { path: 'opaque/' },
      { path: 'opaque/old', content: '3' },
      { path: 'target', content: 'old content' },
      { path: 'name', type: 'link', target: 'target' },
    ],
    [
      { path: 'a/.wh.gone' },
      { path: 'opaque/' },
      { path: 'opaque/.wh..wh..opq' },
      { path: 'opaque/new', content: '4' },
      { path: 'late', type: 'link', target: 'name' },
    ],
    [{ path: 'target', content: 'new content' }],
  ]);
  assert.deepEqual([...flat.keys()].filter((path) => path !== '').sort(), [
    'a',
    'a/stays',
    'late',
    'name',
    'opaque',
    'opaque/new',
    'target',
  ]);
  assert.equal(flat.get('target')?.content.toString(), 'new content');
  const [linked, holder] = flat.get('name')?.type === 'hardlink' ? ['name', 'late'] : ['late', 'name'];
  assert.equal(flat.get(holder)?.content.toString(), 'old content');
  assert.deepEqual(
    [flat.get(linked)?.type, flat.get(linked)?.linkName.replace(/^\.\//u, '')],
    ['hardlink', holder],
  );
});

test('hard links to links and devices keep one inode', async () => {
  const flat = await flatten([
    [
      { path: 'link', type: 'symlink', target: 'x' },
      { path: 'link2', type: 'link', target: 'link' },
      { path: 'null', type: 'character-device', deviceMajor: 1, deviceMinor: 3 },
      { path: 'null2', type: 'link', target: 'null' },
    ],
  ]);
  for (const pair of [
    ['link', 'link2'],
    ['null', 'null2'],
  ]) {
    assert.equal(pair.map((name) => flat.get(name)?.type).filter((type) => type === 'hardlink').length, 1);
  }
});

test('files larger than a window and files of odd sizes keep their bytes', async () => {
  const contents = [0, 1, 511, 512, 513, (1 << 20) - 1, (1 << 20) + 1, 5_000_000].map((size) =>
    Buffer.alloc(size, createHash('sha256').update(String(size)).digest()),
  );
  const flat = await flatten([contents.map((content, index) => ({ path: `f${index}`, content }))]);
  for (const [index, content] of contents.entries())
    assert(flat.get(`f${index}`)?.content.equals(content), `f${index}`);
});

test('equal layers make equal images', async () => {
  await using scratch = await makeScratchDirectory();
  const layer = join(scratch.path, 'layer.tar');
  await writeTar(layer, [{ path: 'b', content: 'b' }, { path: 'a/' }, { path: 'a/x', content: 'x' }]);
  const images = [join(scratch.path, '1'), join(scratch.path, '2')];
  for (const image of images) {
    await makeSquashfs([layer], image);
  }
  const [first, second] = await Promise.all(images.map((image) => readFile(image)));
  assert(first?.equals(second ?? Buffer.alloc(0)));
});

test('an image without files is valid', async () => {
  assert.deepEqual([...(await flatten([[]])).keys()], ['']);
  assert.deepEqual([...(await flatten([])).keys()], ['']);
});

test('a bad layer is named by its number', async () => {
  await using scratch = await makeScratchDirectory();
  const good = join(scratch.path, 'good.tar');
  const bad = join(scratch.path, 'bad.tar');
  await writeTar(good, [{ path: 'a' }]);
  await writeFile(bad, Buffer.alloc(1024, '7'));
  await assert.rejects(readLayers([good, bad], TEST_LIMITS, signal), (error) => {
    return error instanceof LayerError && error.message.startsWith('layer 2 of 2: it is no tar');
  });
});

/** GNU tar unpacks the layers one over the other; the script applies the whiteouts. */
test('an image equals the result of GNU tar with the same layers, byte for byte', async () => {
  await using scratch = await makeScratchDirectory();
  const at = (...parts: string[]) => join(scratch.path, ...parts);
  const run = (script: string) =>
    execFileSync('bash', ['-euc', script], { cwd: scratch.path, timeout: 60_000 });
  run(`
    mkdir -p one two expected actual && cd one
    mkdir -p sticky setgid keep/deep gone opaque/sub && chmod 1777 sticky && chmod 2755 setgid
    echo content > keep/file && ln keep/file keep/hard && ln -s /keep/file keep/link && ln -s nowhere dangling
    echo x > gone/file && echo old > opaque/old && echo old > opaque/sub/old
    cp /bin/true suid && chmod 4711 suid && chown 1234:4321 suid
    mknod null c 1 3 && mknod loop b 7 5 && mkfifo fifo
    mkdir "größe ✓" && touch "größe ✓/$(printf 'a\\377b')" "$(printf 'n%.0s' {1..255})"
    deep=$(printf 'directory-of-a-long-name/%.0s' {1..12}) && mkdir -p "$deep" && echo deep > "\${deep}file"
    ln -s "\${deep}file" long-target && truncate -s 100000 zeros
    cd ../two
    mkdir -p keep opaque && echo second > keep/second && ln keep/second keep/second-hard && chmod 700 keep
    touch .wh.gone opaque/.wh..wh..opq && echo new > opaque/new && echo replaced > dangling
  `);
  run(`find one two -exec touch -hd @1700000000 {} +`);
  const tar = (of: string, format: 'gnu' | 'pax') =>
    run(`tar --format=${format} --numeric-owner --sort=name -C ${of} -cf ${of}.tar .`);
  tar('one', 'gnu');
  tar('two', 'pax');
  run(`
    tar --numeric-owner -C expected -xpf one.tar
    rm -r expected/gone expected/opaque expected/dangling
    tar --numeric-owner -C expected -xpf two.tar --exclude='.wh.*'
  `);
  await makeSquashfs([at('one.tar'), at('two.tar')], at('image.squashfs'));
  run(`
    sqfs2tar --root-becomes . image.squashfs > image.tar
    tar --numeric-owner -C actual -xpf image.tar
    find expected actual -type d -exec touch -d @1700000000 {} +
  `);
  // The same names, owners, modes, times, devices, hard links and contents make the same archive.
  tar('expected', 'gnu');
  tar('actual', 'gnu');
  const list = (name: string) => execFileSync('tar', ['-tvf', at(name)], { encoding: 'latin1' });
  assert.equal(list('actual.tar'), list('expected.tar'));
  assert.equal(run('cmp actual.tar expected.tar').length, 0);
});
