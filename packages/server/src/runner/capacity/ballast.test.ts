import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import { Ballast } from './ballast.ts';

function open(freeMiB: () => number) {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-ballast-'));
  const path = join(directory, 'ballast');
  const disk = {
    reserveMiB: 10,
    get freeMiB() {
      return freeMiB();
    },
  };
  const ballast = new Ballast({ directory, disk, log: pino({ level: 'silent' }) });
  const close = (): void => {
    ballast[Symbol.dispose]();
    rmSync(directory, { recursive: true });
  };
  return { ballast, path, [Symbol.dispose]: close };
}

const full = (): Error => Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
const isHeld = (path: string) =>
  pollUntil({ step: 'ballast', timeoutMs: 5000, intervalMs: 20 }, () => existsSync(path) || undefined);

test('the reserved space is released when a disk is full, for one retry, and reserved again when there is room', async () => {
  let freeMiB = 100;
  using held = open(() => freeMiB);
  const { ballast, path } = held;
  assert.equal(statSync(path).blocks * 512 >= statSync(path).size, true, 'the file is not sparse');
  freeMiB = 0;
  const work = (): boolean => {
    if (existsSync(path)) throw full();
    return true;
  };
  assert.ok(ballast.useSync(work));
  assert.ok(!existsSync(path));
  freeMiB = 100;
  await isHeld(path);
  assert.ok(await ballast.use(async () => work()));
});

test('a second failure and any other error are thrown to the caller', async () => {
  using held = open(() => 100);
  let tries = 0;
  const fail = (error: Error) => () => {
    tries += 1;
    throw error;
  };
  assert.throws(() => held.ballast.useSync(fail(full())), { code: 'ENOSPC' });
  assert.equal(tries, 2);
  await assert.rejects(
    held.ballast.use(async () => fail(new Error('other'))()),
    /other/u,
  );
  assert.equal(tries, 3);
});

test('on a disk that is full from the start the space is reserved later', async () => {
  let freeMiB = 0;
  using held = open(() => freeMiB);
  assert.ok(!existsSync(held.path));
  freeMiB = 100;
  await isHeld(held.path);
});
