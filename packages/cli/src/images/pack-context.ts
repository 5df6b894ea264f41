/** Packs the files of a directory that a build may copy, as a tar archive (PAX). */
import { isUtf8 } from 'node:buffer';
import { createReadStream, type Stats } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Failure } from '../output/failure.ts';
import type { IgnoreRules, Verdict } from './ignore-file.ts';

const BLOCK_BYTES = 512;

/** A directory that is being packed. */
interface Directory {
  /** Relative to the context; empty for the context itself. */
  path: string;
  found: Stats;
  verdict: Verdict;
  above: Directory | undefined;
  isPacked: boolean;
}

/**
 * Yields the archive. Symbolic links stay links; sockets, pipes and devices are left out. Throws Failure for a name or a link
 * that is not UTF-8, unless the rules leave it out: an archive cannot hold it.
 */
export async function* packContext(directory: string, rules: IgnoreRules): AsyncGenerator<Buffer> {
  yield* packBelow(directory, { above: undefined, rules });
  yield Buffer.alloc(2 * BLOCK_BYTES);
}

interface Place {
  /** Undefined for the context itself. */
  above: Directory | undefined;
  rules: IgnoreRules;
}

async function* packBelow(context: string, { above, rules }: Place): AsyncGenerator<Buffer> {
  const parent = join(context, above?.path ?? '');
  const names = await readdir(parent, { encoding: 'buffer' });
  for (const bytes of names.toSorted((a, b) => Buffer.compare(a, b))) {
    const name = bytes.toString();
    const path = above === undefined ? name : `${above.path}/${name}`;
    const full = join(context, path);
    const found = await lstat(Buffer.concat([Buffer.from(`${parent}/`), bytes]));
    const verdict = rules.judge(path, above?.verdict);
    if (verdict.isIgnored && !(found.isDirectory() && rules.hasExceptionsBelow(path))) continue;
    if (!isUtf8(bytes))
      throw new Failure(
        `the name of ${join(parent, toEscaped(bytes))} is not UTF-8: rename it, or leave it out with a rule of the .dockerignore, in which ? and * match such bytes`,
      );
    if (found.isDirectory()) {
      const directory = { path, found, verdict, above, isPacked: false };
      if (!verdict.isIgnored) yield* packDirectory(directory);
      yield* packBelow(context, { above: directory, rules });
    } else {
      if (above !== undefined) yield* packDirectory(above);
      if (found.isSymbolicLink()) yield* packHead(path, found, { type: '2', link: await readTarget(full) });
      else if (found.isFile()) yield* packFile(full, path, found);
    }
  }
}

async function readTarget(link: string): Promise<string> {
  const bytes = await readlink(link, { encoding: 'buffer' });
  if (isUtf8(bytes)) return bytes.toString();
  throw new Failure(
    `the target of the link ${link} is not UTF-8 (${toEscaped(bytes)}): change it, or leave the link out with a rule in the .dockerignore`,
  );
}

/** Returns a text that shows bytes outside of ASCII as `\xe9`. */
function toEscaped(bytes: Buffer): string {
  return bytes
    .toString('latin1')
    .replaceAll(/[\u0080-\u00ff]/gu, (character) => String.raw`\x${character.charCodeAt(0).toString(16)}`);
}

/** Packs a directory and those above it, once. An ignored one is packed for the sake of a file in it, as in Docker. */
function* packDirectory(directory: Directory): Generator<Buffer> {
  if (directory.isPacked) return;
  directory.isPacked = true;
  if (directory.above !== undefined) yield* packDirectory(directory.above);
  yield* packHead(`${directory.path}/`, directory.found, { type: '5' });
}

async function* packFile(full: string, path: string, found: Stats): AsyncGenerator<Buffer> {
  yield* packHead(path, found, { type: '0', sizeBytes: found.size });
  let left = found.size;
  if (left > 0)
    for await (const chunk of createReadStream(full, { end: found.size - 1 }) as AsyncIterable<Buffer>) {
      left -= chunk.length;
      yield chunk;
    }
  if (left > 0) throw new Error(`${full} became shorter while it was read`);
  yield Buffer.alloc((BLOCK_BYTES - (found.size % BLOCK_BYTES)) % BLOCK_BYTES);
}

interface Head {
  type: '0' | '2' | '5';
  sizeBytes?: number;
  link?: string;
}

function* packHead(path: string, { mode, mtimeMs }: Stats, head: Head): Generator<Buffer> {
  const { type, sizeBytes = 0, link = '' } = head;
  const isLong = Buffer.byteLength(path) > 100 || Buffer.byteLength(link) > 100 || sizeBytes >= 8 ** 11;
  const about = { mode: mode & 0o7777, mtimeS: Math.max(0, Math.floor(mtimeMs / 1000)) };
  if (isLong) {
    const records = Buffer.concat([
      paxRecord('path', path),
      ...(link === '' ? [] : [paxRecord('linkpath', link)]),
      paxRecord('size', String(sizeBytes)),
    ]);
    yield header({ ...about, name: 'PaxHeader', type: 'x', sizeBytes: records.length, link: '' });
    yield Buffer.concat([
      records,
      Buffer.alloc((BLOCK_BYTES - (records.length % BLOCK_BYTES)) % BLOCK_BYTES),
    ]);
  }
  yield header({ ...about, name: path, type, sizeBytes: sizeBytes >= 8 ** 11 ? 0 : sizeBytes, link });
}

/** A record begins with its own length. */
function paxRecord(name: string, value: string): Buffer {
  const rest = Buffer.from(` ${name}=${value}\n`);
  let length = rest.length;
  while (length !== String(length).length + rest.length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

interface Fields {
  name: string;
  mode: number;
  mtimeS: number;
  type: string;
  sizeBytes: number;
  link: string;
}

function header({ name, mode, mtimeS, type, sizeBytes, link }: Fields): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  const octal = (value: number, digits: number): string => `${value.toString(8).padStart(digits, '0')}\0`;
  Buffer.from(name).copy(block, 0, 0, 100);
  block.write(octal(mode, 7), 100);
  block.write(octal(0, 7), 108);
  block.write(octal(0, 7), 116);
  block.write(octal(sizeBytes, 11), 124);
  block.write(octal(mtimeS, 11), 136);
  block.write(' '.repeat(8), 148);
  block.write(type, 156);
  Buffer.from(link).copy(block, 157, 0, 100);
  block.write('ustar\x0000', 257, 'latin1');
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return block;
}
