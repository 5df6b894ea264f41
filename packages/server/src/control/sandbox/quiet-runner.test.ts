/** Which runner may get another owner, and when. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpenCalls } from '../placement/open-calls.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { OwnedRunner } from '../runners/owned-runner.ts';
import { ManualClock } from '../testing/manual-clock.ts';
import { chooseToGive, waitUntilQuiet } from './hand-over.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';

interface FakeSandbox {
  row: { status: string };
  isBusy: boolean;
  live: { isInUse: boolean; inUseForMs: number; settle: () => Promise<void> };
}

function makeRunner(id = 'runner-1', openCalls = new OpenCalls()): OwnedRunner {
  const client = { openCalls } as unknown as RunnerClient;
  const runner = new OwnedRunner(id, client, new ManualClock());
  runner.isConnected = true;
  return runner;
}

function makeSandbox(live: Partial<FakeSandbox['live']> = {}): SandboxDriver {
  const sandbox: FakeSandbox = {
    row: { status: 'running' },
    isBusy: false,
    live: { isInUse: false, inUseForMs: 0, settle: async () => undefined, ...live },
  };
  return sandbox as unknown as SandboxDriver;
}

function wait(
  sandboxes: readonly SandboxDriver[],
  { isKept = async () => false, signal = new AbortController().signal, runner = makeRunner() } = {},
): Promise<boolean> {
  return waitUntilQuiet({ runner, sandboxes: () => sandboxes, isKept }, signal);
}

const never = new Promise<void>(() => undefined);

test('a runner whose sandbox has been in use for longer than requests would wait is not chosen', () => {
  const calls = new OpenCalls();
  const [waiting, free, busy] = [
    makeRunner('runner-1'),
    makeRunner('runner-2'),
    makeRunner('runner-3', calls),
  ];
  calls.begin();
  const usedForMs = new Map([
    [waiting.id, 3_001],
    [busy.id, 2_000],
  ]);
  const listAt = (id: string) => [makeSandbox(), makeSandbox({ inUseForMs: usedForMs.get(id) ?? 0 })];
  assert.equal(chooseToGive([waiting, free, busy], listAt), free);
  assert.equal(chooseToGive([waiting, busy], listAt), busy);
  assert.equal(chooseToGive([waiting], listAt), undefined);
});

test('a runner is quiet once its commits are made, and not while one of them takes too long', async () => {
  const committed = Promise.withResolvers<void>();
  const sandboxes = [makeSandbox(), makeSandbox({ settle: () => committed.promise })];
  const quiet = wait(sandboxes);
  committed.resolve();
  assert.equal(await quiet, true);
  const begunAt = performance.now();
  const stuck = [makeSandbox({ settle: () => never })];
  assert.equal(await wait(stuck), false);
  const tookMs = performance.now() - begunAt;
  assert.ok(tookMs < 4_000, `${tookMs} ms`);
});

test('a control that stops does not wait for a commit', async () => {
  const stop = new AbortController();
  const quiet = wait([makeSandbox({ settle: () => never })], { signal: stop.signal });
  setTimeout(() => stop.abort(), 50);
  await assert.rejects(quiet, { name: 'AbortError' });
});

test('a build that has begun keeps its runner at once, and a request that begins during that look counts', async () => {
  const begunAt = performance.now();
  assert.equal(await wait([makeSandbox()], { isKept: async () => true }), false);
  assert.ok(performance.now() - begunAt < 2_000);
  const calls = new OpenCalls();
  const runner = makeRunner('runner-1', calls);
  let looks = 0;
  const isKept = async (): Promise<boolean> => {
    looks += 1;
    if (looks === 1) setTimeout(calls.begin(), 100);
    return false;
  };
  assert.equal(await wait([makeSandbox()], { isKept, runner }), true);
  assert.equal(looks, 2);
});
