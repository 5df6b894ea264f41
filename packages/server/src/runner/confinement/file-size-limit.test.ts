import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { VmmError, VmGoneError } from '../vm/vmm.ts';
import { fileSizeFor, LARGEST_FILE_BYTES, raiseFileSize } from './file-size-limit.ts';

const GIB = 1024 ** 3;
const OTHER_UID = 65_534;

function limitsOf(pid: number): string[] {
  const line = /^Max file size +(\w+) +(\w+)/mu.exec(readFileSync(`/proc/${pid}/limits`, 'utf8')) ?? [];
  return line.slice(1, 3);
}

test('the limit has room for the tables of a disk, and for other files that are larger', () => {
  assert.ok(fileSizeFor(100 * GIB) > 100 * GIB + GIB / 2);
  assert.equal(fileSizeFor(GIB, 2 * GIB), fileSizeFor(0, 2 * GIB));
  assert.ok(LARGEST_FILE_BYTES > 16 * 1024 * GIB);
});

test('the limit of a running process is raised up to its hard limit, and never lowered', async (t) => {
  const identity = process.getuid?.() === 0 ? { uid: OTHER_UID, gid: OTHER_UID } : {};
  const args = [`--fsize=${GIB}:${3 * GIB}`, 'sleep', '60'];
  const child = spawn('prlimit', args, { stdio: 'ignore', ...identity });
  await once(child, 'spawn');
  const { pid = 0 } = child;
  const exited = once(child, 'exit');
  t.after(() => child.kill('SIGKILL'));
  while (limitsOf(pid)[0] !== String(GIB)) await setImmediate();
  await raiseFileSize(pid, 2 * GIB);
  assert.deepEqual(limitsOf(pid), [String(2 * GIB), String(3 * GIB)]);
  await raiseFileSize(pid, GIB);
  assert.deepEqual(limitsOf(pid), [String(2 * GIB), String(3 * GIB)]);
  await assert.rejects(raiseFileSize(pid, 4 * GIB), VmmError);
  child.kill('SIGKILL');
  await exited;
  await assert.rejects(raiseFileSize(pid, 4 * GIB), VmGoneError);
});
