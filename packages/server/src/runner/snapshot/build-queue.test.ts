import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as immediate } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import { BuildQueue } from './build-queue.ts';

/** Builds that end when the test says so. */
function openSite() {
  const queue = new BuildQueue();
  const started: string[] = [];
  const ended: string[] = [];
  let running: { key: string; finish: (error?: Error) => void } | undefined;
  const build = (key: string) => async (signal: AbortSignal) => {
    assert.equal(running, undefined, 'one at a time');
    started.push(key);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    running = { key, finish: (error) => (error === undefined ? resolve() : reject(error)) };
    signal.addEventListener('abort', () => {
      ended.push(key);
      reject(signal.reason as Error);
    });
    await promise.finally(() => (running = undefined));
  };
  const ask = (organization: string, key: string, signal?: AbortSignal) =>
    queue.run({ key, organization, signal, build: build(key) });
  /** Ends the running build and waits until the next has begun. */
  const finish = async (error?: Error): Promise<void> => {
    running?.finish(error);
    await immediate();
  };
  return { queue, started, ended, ask, finish, running: () => running?.key };
}

const isOfCode = (code: string) => (error: unknown) => error instanceof AppError && error.code === code;

/** Ignores rejections that a test does not check. */
const ignore = (promise: Promise<void>): void => void promise.catch(() => undefined);

test('an organization that requests many templates delays another\u2019s first template by one build', async () => {
  const { ask, started, finish } = openSite();
  const refused: unknown[] = [];
  for (let disk = 0; disk < 500; disk += 1)
    ask('a', `a${disk}`).catch((error: unknown) => refused.push(error));
  await immediate();
  const other = ask('b', 'b');
  await finish();
  assert.deepEqual(started, ['a0', 'b']);
  await finish();
  await other;
  assert.deepEqual(started, ['a0', 'b', 'a1']);
  assert.equal(refused.length, 500 - 17);
  assert.ok(refused.every(isOfCode('capacity')));
});

test('organizations are served in rotation, each in its own order', async () => {
  const { ask, started, finish } = openSite();
  for (const key of ['a1', 'a2', 'a3']) ignore(ask('a', key));
  for (const key of ['b1', 'b2']) ignore(ask('b', key));
  ignore(ask('c', 'c1'));
  for (let build = 0; build < 6; build += 1) await finish();
  assert.deepEqual(started, ['a1', 'b1', 'c1', 'a2', 'b2', 'a3']);
});

test('organizations that request one template after another do not delay one that requests two', async () => {
  const { ask, started, finish } = openSite();
  for (const key of ['v1', 'v2']) ignore(ask('v', key));
  ignore(ask('a', 'a1'));
  ignore(ask('b', 'b1'));
  await finish();
  await finish();
  ignore(ask('a', 'a2'));
  await finish();
  ignore(ask('b', 'b2'));
  await finish();
  assert.deepEqual(started.slice(0, 4), ['v1', 'a1', 'b1', 'v2']);
});

test('a template requested by several callers is built once, at the earliest position of any of them', async () => {
  const { ask, started, finish } = openSite();
  ignore(ask('a', 'a1'));
  ignore(ask('a', 'a2'));
  const both = [ask('a', 'common'), ask('b', 'common'), ask('b', 'common')];
  for (let build = 0; build < 4; build += 1) await finish();
  await Promise.all(both);
  assert.deepEqual(started, ['a1', 'common', 'a2']);
});

test('a queued build is dropped when its last caller leaves, and never runs', async () => {
  const { ask, started, finish } = openSite();
  ignore(ask('a', 'first'));
  const [left, stays] = [new AbortController(), new AbortController()];
  const waits = [
    ask('a', 'dropped', left.signal),
    ask('a', 'kept', left.signal),
    ask('b', 'kept', stays.signal),
  ];
  left.abort(new Error('destroyed'));
  for (const wait of waits.slice(0, 2)) await assert.rejects(wait, /destroyed/u);
  await finish();
  await finish();
  await waits[2];
  assert.deepEqual(started, ['first', 'kept']);
});

test('the builds queued for an organization are limited, and a caller that leaves makes room', async () => {
  const { ask } = openSite();
  const left = new AbortController();
  for (let number = 0; number < 17; number += 1) ignore(ask('a', `a${number}`, left.signal));
  await assert.rejects(ask('a', 'one more'), isOfCode('capacity'));
  ignore(ask('a', 'a16'));
  ignore(ask('b', 'b'));
  left.abort(new Error('destroyed'));
  await immediate();
  // A caller still waits for `a16`.
  for (let number = 0; number < 15; number += 1) ignore(ask('a', `again${number}`));
  await assert.rejects(ask('a', 'one more'), isOfCode('capacity'));
});

test('a running build without callers is ended, and the next begins', async () => {
  const { ask, started, ended, running } = openSite();
  const left = new AbortController();
  const waits = ask('a', 'long', left.signal);
  ignore(ask('b', 'next'));
  left.abort(new Error('destroyed'));
  await assert.rejects(waits, /destroyed/u);
  await immediate();
  assert.deepEqual([started, ended, running()], [['long', 'next'], ['long'], 'next']);
});

test('a request for a template whose build is being ended gets a new build', async () => {
  const { queue } = openSite();
  const left = new AbortController();
  const cleaned = Promise.withResolvers<void>();
  const first = queue.run({
    key: 'k',
    organization: 'a',
    signal: left.signal,
    build: () => cleaned.promise.then(() => Promise.reject(new Error('ended'))),
  });
  left.abort(new Error('destroyed'));
  await assert.rejects(first, /destroyed/u);
  let builds = 0;
  const second = queue.run({ key: 'k', organization: 'b', build: async () => void (builds += 1) });
  await immediate();
  assert.equal(builds, 0);
  cleaned.resolve();
  await second;
  assert.equal(builds, 1);
});

test('a failed build fails for all waiting callers, and the next request starts a new one', async () => {
  const { ask, started, finish } = openSite();
  const waits = [ask('a', 'k'), ask('b', 'k')];
  const failures = Promise.allSettled(waits);
  await finish(new Error('no boot'));
  assert.deepEqual(
    (await failures).map(({ status }) => status),
    ['rejected', 'rejected'],
  );
  const again = ask('a', 'k');
  await finish();
  await again;
  assert.deepEqual(started, ['k', 'k']);
});
