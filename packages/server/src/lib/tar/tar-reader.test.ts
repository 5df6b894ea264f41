import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, open, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { ByteWindow } from './byte-window.ts';
import type { Inode } from './inode.ts';
import { LayerError } from './layer-error.ts';
import { TAR_BLOCK_BYTES, encodePaxRecord, encodeTarHeader, type TarHeader } from './tar-format.ts';
import { readTar, type TarEntry, type TarReading } from './tar-reader.ts';
import { TarWriter } from './tar-writer.ts';

async function makeScratchDirectory(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'coppice-tar-'));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

const HEADER: TarHeader = {
  name: 'a',
  typeFlag: '0',
  mode: 0o644,
  uid: 0,
  gid: 0,
  mtimeSeconds: 0,
  sizeBytes: 0,
  linkName: '',
  deviceMajor: 0,
  deviceMinor: 0,
};
const END = Buffer.alloc(2 * TAR_BLOCK_BYTES);

async function readFileEntries(path: string): Promise<TarEntry[]> {
  await using file = await open(path);
  const entries: TarEntry[] = [];
  for await (const entry of readTar(file)) entries.push(entry);
  return entries;
}

async function readEntries(...parts: Buffer[]): Promise<TarEntry[]> {
  await using scratch = await makeScratchDirectory();
  const path = join(scratch.path, 'a.tar');
  await writeFile(path, Buffer.concat(parts));
  return await readFileEntries(path);
}

function pax(...records: [string, Buffer | string][]): Buffer {
  const data = Buffer.concat(
    records.map(([key, value]) => encodePaxRecord(key, Buffer.from(value as string))),
  );
  return extension('x', data);
}

function extension(typeFlag: string, data: Buffer): Buffer {
  const padding = Buffer.alloc(Math.ceil(data.length / TAR_BLOCK_BYTES) * TAR_BLOCK_BYTES - data.length);
  return Buffer.concat([encodeTarHeader({ ...HEADER, typeFlag, sizeBytes: data.length }), data, padding]);
}

async function assertRefused(parts: Buffer[], pattern: RegExp): Promise<void> {
  await assert.rejects(
    readEntries(...parts),
    (error) => error instanceof LayerError && pattern.test(error.message),
  );
}

test('archives of GNU tar in all its formats are read', async () => {
  await using scratch = await makeScratchDirectory();
  const root = join(scratch.path, 'root');
  await mkdir(join(root, 'dir'), { recursive: true });
  await writeFile(join(root, 'dir', 'file'), 'x'.repeat(1000), { mode: 0o640 });
  await symlink('../some/where', join(root, 'dir', 'link'));
  await utimes(join(root, 'dir', 'file'), 1_700_000_000, 1_700_000_000);
  execFileSync('ln', [join(root, 'dir', 'file'), join(root, 'hard')]);
  for (const format of ['v7', 'oldgnu', 'gnu', 'ustar', 'posix']) {
    const path = join(scratch.path, `${format}.tar`);
    const options = [`--format=${format}`, '--sort=name', '--owner=12:1234', '--group=13:1235'];
    execFileSync('tar', ['--create', `--file=${path}`, ...options, '-C', root, '.']);
    const entries = new Map((await readFileEntries(path)).map((entry) => [entry.name, entry]));
    assert.deepEqual([...entries.keys()], ['./', './dir/', './dir/file', './dir/link', './hard'], format);
    const file = entries.get('./dir/file');
    assert.equal(entries.get('./dir/')?.type, 'directory');
    assert.deepEqual(
      [file?.type, file?.mode, file?.uid, file?.gid, file?.mtimeSeconds, file?.sizeBytes],
      ['file', 0o640, 1234, 1235, 1_700_000_000, 1000],
    );
    assert.equal(entries.get('./dir/link')?.linkName, '../some/where');
    assert.deepEqual(
      [entries.get('./hard')?.type, entries.get('./hard')?.linkName],
      ['hardlink', './dir/file'],
    );
  }
});

test('long and UTF-8 names and targets come out of GNU and PAX archives byte for byte', async () => {
  await using scratch = await makeScratchDirectory();
  const root = join(scratch.path, 'root');
  const directory = 'ä'.repeat(100);
  const name = `${'文'.repeat(60)} \n"x"`;
  const target = `/${'ziel/'.repeat(40)}`;
  await mkdir(join(root, directory), { recursive: true });
  await writeFile(join(root, directory, name), 'x');
  await symlink(target, join(root, 'link'));
  for (const format of ['gnu', 'posix']) {
    const path = join(scratch.path, `${format}.tar`);
    execFileSync('tar', ['--create', `--file=${path}`, `--format=${format}`, '-C', root, directory, 'link']);
    const entries = await readFileEntries(path);
    const names = entries.map((entry) => Buffer.from(entry.name, 'latin1').toString());
    assert.deepEqual(names, [`${directory}/`, `${directory}/${name}`, 'link'], format);
    assert.equal(entries[2]?.linkName, target);
  }
});

test('binary attributes, large numbers and fractions of PAX are read', async () => {
  const capability = Buffer.from([1, 0, 0, 2, 0x80, 0xff, 0, 10, 0x3d]);
  const [entry] = await readEntries(
    extension('g', Buffer.from('garbage that is ignored')),
    pax(
      ['SCHILY.xattr.security.capability', capability],
      ['uid', '4000000000'],
      ['mtime', '-1.5'],
      ['path', 'b'],
    ),
    encodeTarHeader(HEADER),
    END,
  );
  assert.deepEqual(entry?.xattrs.get('security.capability'), capability);
  assert.deepEqual([entry?.uid, entry?.mtimeSeconds, entry?.name], [4_000_000_000, -2, 'b']);
});

test('numbers in base 256 are read, and extended headers of one entry do not apply to the next', async () => {
  const big = encodeTarHeader(HEADER);
  big.fill(0, 108, 116);
  big.writeUInt8(0x80, 108);
  big.writeUInt32BE(3_000_000_000, 112);
  const sum = big.fill(' ', 148, 156).reduce((total, byte) => total + byte, 0);
  big.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  const entries = await readEntries(pax(['gid', '7']), big, encodeTarHeader({ ...HEADER, name: 'b' }));
  assert.deepEqual(
    entries.map(({ name, uid, gid }) => [name, uid, gid]),
    [
      ['a', 3_000_000_000, 7],
      ['b', 0, 0],
    ],
  );
});

test('an empty archive and one without end blocks are read', async () => {
  assert.deepEqual(await readEntries(), []);
  assert.deepEqual(await readEntries(END), []);
  assert.equal((await readEntries(encodeTarHeader(HEADER))).length, 1);
});

test('a malformed, truncated or unsupported archive is refused', async () => {
  await assertRefused([Buffer.alloc(1024, '7')], /no tar archive/u);
  await assertRefused([encodeTarHeader(HEADER).subarray(0, 300)], /cut within a header/u);
  await assertRefused([encodeTarHeader({ ...HEADER, sizeBytes: 9999 }), END], /cut within "a"/u);
  await assertRefused([pax(['path', 'b'])], /ends after an extended header/u);
  await assertRefused([pax(['GNU.sparse.major', '1']), encodeTarHeader(HEADER)], /sparse/u);
  await assertRefused([encodeTarHeader({ ...HEADER, typeFlag: 'S' })], /unsupported tar type/u);
  await assertRefused(
    [extension('x', Buffer.from('12 path=b')), encodeTarHeader(HEADER)],
    /PAX header is malformed/u,
  );
  await assertRefused([extension('x', Buffer.from('-1 a=b\n'))], /PAX header is malformed/u);
  await assertRefused([pax(['size', '1e9']), encodeTarHeader(HEADER)], /no number/u);
  await assertRefused([pax(['size', '-1']), encodeTarHeader(HEADER)], /cut within/u);
  await assertRefused([encodeTarHeader({ ...HEADER, typeFlag: 'x', sizeBytes: 2 << 20 })], /at most/u);
  await assertRefused(
    [encodeTarHeader(HEADER), Buffer.alloc(512, '7')],
    /wrong header checksum\), at byte 512/u,
  );
  await assertRefused(
    Array.from({ length: 17 }, () => pax(['path', 'b'])),
    /more than 16 extended headers/u,
  );
  await assertRefused([Buffer.alloc(512), encodeTarHeader(HEADER), END], /empty block is between/u);
});

test('for any bytes the reader returns entries or throws LayerError', async () => {
  await using scratch = await makeScratchDirectory();
  const path = join(scratch.path, 'fuzz.tar');
  const sound = Buffer.concat([
    pax(['path', 'b'], ['SCHILY.xattr.user.a', 'b']),
    encodeTarHeader({ ...HEADER, sizeBytes: 3 }),
    Buffer.alloc(TAR_BLOCK_BYTES, 'x'),
    encodeTarHeader({ ...HEADER, typeFlag: '2', linkName: 'c' }),
    END,
  ]);
  const changes = fc.array(fc.tuple(fc.nat(sound.length - 1), fc.nat(255)), { maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(changes, fc.nat(sound.length), async (edits, length) => {
      const bytes = Buffer.from(sound);
      for (const [offset, value] of edits) bytes[offset] = value;
      repairChecksums(bytes);
      await writeFile(path, bytes.subarray(0, length));
      await readFileEntries(path).catch((error: unknown) => {
        assert(error instanceof LayerError, String(error));
      });
    }),
    { numRuns: 500 },
  );
});

/** Repairs the checksums: without this, nearly every change would fail there. */
function repairChecksums(bytes: Buffer): void {
  for (let offset = 0; offset + TAR_BLOCK_BYTES <= bytes.length; offset += TAR_BLOCK_BYTES) {
    const block = bytes.subarray(offset, offset + TAR_BLOCK_BYTES);
    if (block.toString('latin1', 257, 262) !== 'ustar') continue;
    const sum = block.fill(' ', 148, 156).reduce((total, byte) => total + byte, 0);
    block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  }
}

const byteString = (minLength: number, maxLength: number) =>
  fc
    .uint8Array({ minLength, maxLength })
    .map((bytes) => Buffer.from(bytes.map((byte) => byte || 1)).toString('latin1'));

test('the reader reads back all that the writer writes', async () => {
  await using scratch = await makeScratchDirectory();
  const path = join(scratch.path, 'round.tar');
  const inode = fc.record({
    name: byteString(1, 300).map((name) => `n${name.replaceAll('/', '_')}`),
    uid: fc.constantFrom(0, 1000, 2_097_152, 4_294_967_295),
    mtimeSeconds: fc.constantFrom(0, 1_700_000_000, 4_294_967_295),
    target: byteString(1, 300),
    xattrs: fc.array(fc.tuple(byteString(1, 20), fc.uint8Array({ maxLength: 120 })), { maxLength: 3 }),
    content: fc.uint8Array({ maxLength: 1500 }),
    isLink: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(inode, { maxLength: 5 }), async (inodes) => {
      const chunks: Buffer[] = [];
      const writer = new TarWriter(async (chunk) => {
        chunks.push(Buffer.from(chunk));
      });
      for (const item of inodes) {
        const contentPath = join(scratch.path, 'content');
        await writeFile(contentPath, item.content);
        await using content = await open(contentPath);
        const model = buildModel(item);
        await writer.writeInode(item.name, model);
        if (!item.isLink) await writer.writeContent(new ByteWindow(content, 512), model);
      }
      await writer.end();
      await writeFile(path, Buffer.concat(chunks));
      const archive = Buffer.concat(chunks);
      for (const [index, read] of (await readFileEntries(path)).entries()) {
        const item = inodes[index]!;
        assert.equal(read.name, item.name);
        assert.deepEqual([read.uid, read.mtimeSeconds], [item.uid, item.mtimeSeconds]);
        assert.equal(read.linkName, item.isLink ? item.target : '');
        assert.deepEqual(read.xattrs, buildModel(item).xattrs);
        const bytes = archive.subarray(read.dataOffset, read.dataOffset + read.sizeBytes);
        assert.deepEqual(bytes, item.isLink ? Buffer.alloc(0) : Buffer.from(item.content));
      }
    }),
    { numRuns: 100 },
  );
});

interface RoundTripItem {
  uid: number;
  mtimeSeconds: number;
  target: string;
  xattrs: [string, Uint8Array][];
  content: Uint8Array;
  isLink: boolean;
}

function buildModel(item: RoundTripItem): Inode {
  return {
    type: item.isLink ? 'symlink' : 'file',
    mode: 0o4755,
    uid: item.uid,
    gid: item.uid,
    mtimeSeconds: item.mtimeSeconds,
    xattrs: new Map(item.xattrs.map(([name, value]) => [name.replaceAll('=', '_'), Buffer.from(value)])),
    layer: 0,
    dataOffset: 0,
    sizeBytes: item.isLink ? 0 : item.content.length,
    target: item.isLink ? item.target : '',
    deviceMajor: 0,
    deviceMinor: 0,
  };
}

test('a reader for a shared process leaves extended attributes out, and reads less of extended headers', async () => {
  await using scratch = await makeScratchDirectory();
  const path = join(scratch.path, 'a.tar');
  const read = async (parts: Buffer[], how: TarReading): Promise<TarEntry[]> => {
    await writeFile(path, Buffer.concat(parts));
    await using file = await open(path);
    return await Array.fromAsync(readTar(file, how));
  };
  const records: [string, string][] = [
    ['path', 'long'],
    ['mtime', '12.5'],
    ['SCHILY.xattr.user.a', 'x'],
    ['LIBARCHIVE.creationtime', '1'],
    ['SCHILY.acl.access', 'user::rw-,group::r--,mask::rw-,other::r--'],
  ];
  const parts = [pax(...records), encodeTarHeader({ ...HEADER, mode: 0o664 }), END];
  const [entry] = await read(parts, { keepsXattrs: false });
  assert.deepEqual(
    [entry?.name, entry?.mtimeSeconds, entry?.mode, entry?.xattrs.size],
    ['long', 12, 0o644, 0],
  );
  assert.equal((await read(parts, {}))[0]?.xattrs.size, 1);
  await assert.rejects(
    read([pax(['GNU.sparse.major', '1']), encodeTarHeader(HEADER), END], { keepsXattrs: false }),
    /sparse/u,
  );
  const comment = pax(['comment', 'x'.repeat(1000)]);
  const one = [comment, encodeTarHeader(HEADER)];
  await assert.rejects(read([...one, END], { extensionBytes: 1000 }), /at most 1000 are read/u);
  await assert.rejects(
    read([...one, ...one, ...one, END], { extensionsBytes: 3000 }),
    /more than 3000 bytes/u,
  );
  assert.equal((await read([...one, ...one, END], { extensionsBytes: 3000 })).length, 2);
});

test('a reader with a signal lets other work run, and ends when it fires', async () => {
  await using scratch = await makeScratchDirectory();
  const path = join(scratch.path, 'a.tar');
  await writeFile(path, Buffer.concat([...Array.from({ length: 5000 }, () => encodeTarHeader(HEADER)), END]));
  await using file = await open(path);
  const stop = new AbortController();
  let seen = 0;
  setImmediate(() => stop.abort(new Error('stopped')));
  await assert.rejects(async () => {
    for await (const _ of readTar(file, { signal: stop.signal })) seen += 1;
  }, /stopped/u);
  assert.ok(seen < 5000);
});
