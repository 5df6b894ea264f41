/**
 * When a runner may get another owner without failing a request: nothing is under way at it through this control.
 *
 *     chosen ─► new requests wait for the next owner ─► open ones end ─► given
 *                                                         └── not in time: requests that waited are served here again
 *
 * A stream that is open, such as a terminal, goes through this control, so it keeps its runner here.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { OwnedRunner } from '../runners/owned-runner.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';

/** For this long new requests wait for the open ones. */
const PATIENCE_MS = 3_000;
const LOOK_EVERY_MS = 25;

type Sandboxes = () => readonly SandboxDriver[];

/**
 * Chooses the runner with the fewest open requests, unless one of them is longer than the patience here. A request that waits for
 * the end of a command has no call to the runner open, but uses its sandbox.
 */
export function chooseToGive(
  runners: readonly OwnedRunner[],
  listAt: (runnerId: string) => readonly SandboxDriver[],
): OwnedRunner | undefined {
  return runners
    .filter(({ isConnected, client: { openCalls } }) => isConnected && openCalls.longestMs < PATIENCE_MS)
    .filter(({ id }) => listAt(id).every(({ live }) => live.inUseForMs < PATIENCE_MS))
    .toSorted((a, b) => a.client.openCalls.count - b.client.openCalls.count)[0];
}

interface Quieting {
  runner: OwnedRunner;
  sandboxes: Sandboxes;
  /** Whether something without a request keeps the runner here. */
  isKept: () => Promise<boolean>;
}

/** Resolves when nothing is under way, and commits that have begun are made. False if that takes too long, or it is kept. */
export async function waitUntilQuiet(quieting: Quieting, signal: AbortSignal): Promise<boolean> {
  const done = new AbortController();
  const either = AbortSignal.any([signal, done.signal]);
  // A commit may wait for an answer of the runner for much longer, so the wait for commits is bounded, too.
  const late = delay(PATIENCE_MS, false, { signal: either });
  try {
    return await Promise.race([late, lookUntilQuiet(quieting, either)]);
  } finally {
    done.abort();
  }
}

async function lookUntilQuiet(
  { runner, sandboxes, isKept }: Quieting,
  signal: AbortSignal,
): Promise<boolean> {
  for (;;) {
    // Before the first look, too: a request that has just found its driver is about to use it.
    await delay(LOOK_EVERY_MS, undefined, { signal });
    await Promise.all(sandboxes().map(({ live }) => live.settle()));
    if (!isQuiet(runner, sandboxes())) continue;
    if (await isKept()) return false;
    // What has begun meanwhile was not seen.
    if (isQuiet(runner, sandboxes())) return true;
  }
}

function isQuiet({ client }: OwnedRunner, sandboxes: readonly SandboxDriver[]): boolean {
  return (
    client.openCalls.count === 0 &&
    sandboxes.every(({ row, isBusy, live }) => !isBusy && !live.isInUse && row.status !== 'creating')
  );
}
