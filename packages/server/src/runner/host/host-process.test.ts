import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import { findIdentity, findUsage, isAlive, killAndWait } from './host-process.ts';

/** A program that ends only its first thread; the threads of the engine stay. */
const HEADLESS = `
  import koffi from 'koffi';
  const SYS_EXIT = 60;
  koffi.load('libc.so.6').func('long syscall(long number, long status)')(SYS_EXIT, 0);`;

test('the usage of a process has its memory now and its peak', () => {
  const identity = findIdentity(process.pid)!;
  const usage = findUsage(identity);
  assert.ok(usage !== undefined && usage.cpuMs > 0);
  assert.ok(usage.memBytes > 1 << 20 && usage.memBytes <= usage.memPeakBytes);
  assert.equal(findUsage({ ...identity, startTicks: identity.startTicks + 1 }), undefined);
});

test('a process whose first thread has ended is alive while others hold its files', async () => {
  const child = spawn(process.execPath, ['--input-type=module', '-e', HEADLESS], {
    stdio: 'ignore',
    cwd: import.meta.dirname,
    timeout: 20_000,
    killSignal: 'SIGKILL',
  });
  const ended = once(child, 'exit');
  const pid = child.pid ?? 0;
  const identity = findIdentity(pid)!;
  await pollUntil({ step: 'the end of the first thread', timeoutMs: 10_000, intervalMs: 10 }, () =>
    / Z /u.test(readFileSync(`/proc/${pid}/stat`, 'latin1')) ? true : undefined,
  );
  assert.equal(isAlive(identity), true);
  await killAndWait(identity);
  assert.equal(isAlive(identity), false);
  await ended;
});
