import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { canRaiseLimits, fileSizeFor, LARGEST_FILE_BYTES, raiseFileSize } from './file-size-limit.ts';

const GIB = 1024 ** 3;

function limitsOf(pid: number): string[] {
  const line = /^Max file size +(\w+) +(\w+)/mu.exec(readFileSync(`/proc/${pid}/limits`, 'utf8')) ?? [];
  return line.slice(1, 3);
}

test('the limit has room for the tables of a disk, and for other files that are larger', () => {
  assert.ok(fileSizeFor(100 * GIB) > 100 * GIB + GIB / 2);
  assert.equal(fileSizeFor(GIB, 2 * GIB), fileSizeFor(0, 2 * GIB));
  assert.ok(LARGEST_FILE_BYTES > 16 * 1024 * GIB);
});

test('the limit of a running process is raised, and never lowered', async (t) => {
  const child = spawn('prlimit', [`--fsize=${GIB}:${2 * GIB}`, 'sleep', '60'], { stdio: 'ignore' });
  await once(child, 'spawn');
  const { pid = 0 } = child;
  t.after(() => child.kill('SIGKILL'));
  while (limitsOf(pid)[0] !== String(GIB)) await new Promise(setImmediate);
  // Without the capability a process may still raise the soft limit of one of its own user.
  const wanted = (await canRaiseLimits()) ? 3 * GIB : 2 * GIB;
  await raiseFileSize(pid, wanted);
  assert.deepEqual(limitsOf(pid), [String(wanted), String(wanted)]);
  await raiseFileSize(pid, GIB);
  assert.deepEqual(limitsOf(pid), [String(wanted), String(wanted)]);
});
