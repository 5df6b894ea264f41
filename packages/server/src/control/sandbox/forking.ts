/**
 * Children of one fork. All start at once, and each succeeds or fails on its own: the runner gives one answer for all,
 * and each child that it made becomes a sandbox like any other, even if its siblings failed.
 */
import { AppError, type SandboxRecord } from '@coppice/contract';
import type { ForkedVms, VmInfo } from '../../lib/protocol/runner-protocol.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';

export type ForkedChild = { record: SandboxRecord } | { error: unknown };

/** Starts all children. Returns the results in the order of the children. Throws the first error if no child runs. */
export async function bootChildren(
  children: readonly SandboxDriver[],
  forked: Promise<ForkedVms>,
): Promise<ForkedChild[]> {
  // Each child awaits it, but possibly after it has rejected.
  forked.catch(() => undefined);
  const boots = children.map((child, index) => child.boot.join(async () => takeChild(await forked, index)));
  const outcomes = (await Promise.allSettled(boots)).map(readOutcome);
  const [first] = outcomes;
  if (first !== undefined && 'error' in first && outcomes.every((one) => 'error' in one)) throw first.error;
  return outcomes;
}

function takeChild({ children }: ForkedVms, index: number): VmInfo {
  const child = children[index];
  if (child === undefined) throw new AppError('internal', 'the runner did not report a child');
  if ('vm' in child) return child.vm;
  throw new AppError(child.error.code, child.error.message);
}

function readOutcome(outcome: PromiseSettledResult<SandboxRecord>): ForkedChild {
  return outcome.status === 'fulfilled' ? { record: outcome.value } : { error: outcome.reason };
}

/**
 * Returns the outcome of a fork whose caller is gone. `nothing`: every child has failed or has no record, so the fork
 * can be begun anew. `begun`: a child is still being created.
 */
export function readFork(
  children: readonly (SandboxRecord | undefined)[],
): 'nothing' | 'begun' | ForkedChild[] {
  if (children.some((record) => record?.status === 'creating')) return 'begun';
  if (children.every((record) => record === undefined || record.status === 'failed')) return 'nothing';
  return children.map((record) =>
    record === undefined || record.status === 'failed' ? { error: INTERRUPTED } : { record },
  );
}

const INTERRUPTED = new AppError(
  'unavailable',
  'the service restarted while this child was being created; fork again',
);
