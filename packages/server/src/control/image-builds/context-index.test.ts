import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { encodePaxRecord, encodeTarHeader, padToBlock, TAR_BLOCK_BYTES } from '../../lib/tar/tar-format.ts';
import { layOutTar } from '../testing/tar-of-files.ts';
import { indexContext, MAX_ENTRIES, type ContextIndex } from './context-index.ts';

const { signal } = new AbortController();
const directory = mkdtempSync(join(tmpdir(), 'coppice-index-'));
after(() => rmSync(directory, { recursive: true, force: true }));

async function index(...parts: Buffer[]): Promise<ContextIndex> {
  const path = join(directory, 'a.tar');
  writeFileSync(path, Buffer.concat([...parts, Buffer.alloc(2 * TAR_BLOCK_BYTES)]));
  return indexContext(path, signal);
}

function header(
  name: string,
  change: { typeFlag?: string; linkName?: string; sizeBytes?: number } = {},
): Buffer {
  const numbers = { mode: 0o644, uid: 0, gid: 0, mtimeSeconds: 0, deviceMajor: 0, deviceMinor: 0 };
  return encodeTarHeader({ name, typeFlag: '0', linkName: '', sizeBytes: 0, ...numbers, ...change });
}

function pax(key: string, value: string | Buffer): Buffer {
  const record = encodePaxRecord(key, Buffer.from(value));
  const padding = Buffer.alloc(padToBlock(record.length) - record.length);
  return Buffer.concat([header('x', { typeFlag: 'x', sizeBytes: record.length }), record, padding]);
}

test('archives of GNU tar in all its formats are indexed, with their contents', async () => {
  const root = join(directory, 'root');
  mkdirSync(join(root, 'größe'), { recursive: true });
  const name = `größe/${'n'.repeat(200)}`;
  writeFileSync(join(root, name), 'content', { mode: 0o640 });
  symlinkSync(`/${'t'.repeat(150)}`, join(root, 'link'));
  for (const format of ['gnu', 'posix']) {
    const path = join(directory, `${format}.tar`);
    execFileSync('tar', ['--create', `--file=${path}`, `--format=${format}`, '--sort=name', '-C', root, '.']);
    const made = await indexContext(path, signal);
    const latin1 = (text: string): string => Buffer.from(text).toString('latin1');
    const paths = Array.from({ length: made.length }, (_, number) => made.path(number));
    assert.deepEqual(paths, ['', latin1('größe'), latin1(name), 'link'], format);
    const { type, mode, sizeBytes } = made.entry(2);
    assert.deepEqual([type, mode, sizeBytes], ['file', 0o640, 7]);
    assert.equal(made.entry(3).target, `/${'t'.repeat(150)}`);
    const [digest] = await Array.fromAsync(made.digest(path, [2], signal));
    assert.equal(digest?.toString('hex'), createHash('sha256').update('content').digest('hex'));
    rmSync(path);
    await assert.rejects(Array.fromAsync(made.digest(path, [2], signal)), /ENOENT/u);
  }
});

test('a content is read once, however often it is asked for', async () => {
  const path = join(directory, 'once.tar');
  writeFileSync(path, layOutTar([{ path: 'a', content: 'first' }]));
  const made = await indexContext(path, signal);
  const [first] = await Array.fromAsync(made.digest(path, [0, 0], signal));
  const known = first?.toString('hex');
  writeFileSync(path, layOutTar([{ path: 'a', content: 'other' }]));
  const [second] = await Array.fromAsync(made.digest(path, [0], signal));
  assert.equal(second?.toString('hex'), known);
});

test('extended attributes and unknown records are left out', async () => {
  const made = await index(pax('SCHILY.xattr.user.a', Buffer.alloc(60_000, 1)), header('a'));
  assert.deepEqual([made.length, made.path(0)], [1, 'a']);
  assert.ok(made.sizeBytes < 1000);
});

test('what a context may not have is refused', async () => {
  await assert.rejects(
    index(pax('SCHILY.xattr.user.a', Buffer.alloc(70_000, 1)), header('a')),
    /at most 65536/u,
  );
  const large = Array.from({ length: 300 }, () => [pax('comment', 'x'.repeat(60_000)), header('a')]);
  await assert.rejects(index(...large.flat()), /extended headers have more than 16777216 bytes/u);
  await assert.rejects(index(header('a', { typeFlag: '1', linkName: 'b' })), /is a hardlink/u);
  await assert.rejects(index(header('a', { typeFlag: '3' })), /is a character/u);
  await assert.rejects(index(header('a', { typeFlag: '2' })), /empty or overlong target/u);
  await assert.rejects(index(header('../a')), /leads out/u);
  await assert.rejects(index(pax('path', 'd/'.repeat(300)), header('a')), /more than 256 directories/u);
  const many = Buffer.alloc((MAX_ENTRIES + 1) * TAR_BLOCK_BYTES, header('a'));
  await assert.rejects(index(many), /more than 100000 entries/u);
  const named = [pax('path', `${'n/'.repeat(200)}${'n'.repeat(200)}`), header('a')];
  const names = Array.from({ length: 60_000 }, () => named).flat();
  await assert.rejects(index(...names), /names have more than 8388608 bytes/u);
});

test('a large archive leaves time to others, and its reader ends with the signal', async () => {
  const path = join(directory, 'large.tar');
  writeFileSync(
    path,
    Buffer.concat([Buffer.alloc(90_000 * TAR_BLOCK_BYTES, header('a')), Buffer.alloc(1024)]),
  );
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 1);
  const made = await indexContext(path, signal);
  clearInterval(timer);
  assert.ok(turns > 20, `${turns} turns`);
  assert.equal(made.length, 90_000);
  assert.ok(made.sizeBytes < 8_000_000, `${made.sizeBytes} bytes`);
  await assert.rejects(indexContext(path, AbortSignal.timeout(5)), /timeout/u);
});
