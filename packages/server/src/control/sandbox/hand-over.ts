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

/** Chooses the runner with the fewest open requests, unless one of them is longer than the patience here. */
export function chooseToGive(runners: readonly OwnedRunner[]): OwnedRunner | undefined {
  return runners
    .filter(({ isConnected, client: { openCalls } }) => isConnected && openCalls.longestMs < PATIENCE_MS)
    .toSorted((a, b) => a.client.openCalls.count - b.client.openCalls.count)[0];
}

/** Resolves when nothing is under way, and commits that have begun are made. False if that takes too long. */
export async function waitUntilQuiet(
  runner: OwnedRunner,
  sandboxes: Sandboxes,
  signal: AbortSignal,
): Promise<boolean> {
  const end = performance.now() + PATIENCE_MS;
  // Once before the first look: a request that has just found its driver is about to use it.
  do {
    await delay(LOOK_EVERY_MS, undefined, { signal });
    await Promise.all(sandboxes().map(({ live }) => live.settle()));
    if (isQuiet(runner, sandboxes())) return true;
  } while (performance.now() < end);
  return false;
}

function isQuiet({ client }: OwnedRunner, sandboxes: readonly SandboxDriver[]): boolean {
  return (
    client.openCalls.count === 0 &&
    sandboxes.every(({ row, isBusy, live }) => !isBusy && !live.isInUse && row.status !== 'creating')
  );
}
