import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { AppError, type ErrorCode } from '@coppice/contract';
import { checkFreeSpace, withinSpace } from './disk-space.ts';
import { makeScratchDirectory } from '../testing/scratch-directory.ts';

const { signal } = new AbortController();

const hasCode = (code: ErrorCode) => (error: unknown) => error instanceof AppError && error.code === code;

/** Writes a file and then works until it is stopped. */
async function writeAndStay(directory: string, bytes: number, stop: AbortSignal): Promise<never> {
  await writeFile(join(directory, 'written'), Buffer.alloc(bytes));
  if (!stop.aborted) await once(stop, 'abort');
  throw stop.reason;
}

test('work that writes more than the limit is stopped', async () => {
  await using scratch = await makeScratchDirectory();
  const limits = { maxBytes: 1000, minFreeBytes: 0 };
  const work = withinSpace(scratch.path, limits, signal, (stop) => writeAndStay(scratch.path, 1001, stop));
  await assert.rejects(work, hasCode('invalid_image'));
});

test('work is stopped when the disk fills up', async () => {
  await using scratch = await makeScratchDirectory();
  const limits = { maxBytes: 1000, minFreeBytes: Number.MAX_SAFE_INTEGER };
  const work = withinSpace(scratch.path, limits, signal, (stop) => writeAndStay(scratch.path, 1, stop));
  await assert.rejects(work, hasCode('capacity'));
});

test('work within its limits returns its result, and an abort from outside reaches it', async () => {
  await using scratch = await makeScratchDirectory();
  const limits = { maxBytes: 1000, minFreeBytes: 0 };
  assert.equal(await withinSpace(scratch.path, limits, signal, async () => 'done'), 'done');
  const outside = new AbortController();
  const work = withinSpace(scratch.path, limits, outside.signal, (stop) =>
    writeAndStay(scratch.path, 1, stop),
  );
  outside.abort(new Error('enough'));
  await assert.rejects(work, /enough/u);
});

test('free space must cover the needed bytes and the reserve', async () => {
  await using scratch = await makeScratchDirectory();
  await checkFreeSpace(scratch.path, 1, 1);
  await assert.rejects(checkFreeSpace(scratch.path, Number.MAX_SAFE_INTEGER, 0), hasCode('capacity'));
  await assert.rejects(checkFreeSpace(scratch.path, 0, Number.MAX_SAFE_INTEGER), hasCode('capacity'));
});
