/**
 * Children of one fork, all begun at once and each going its own way: the runner answers for all of them, and each child
 * that it made becomes a sandbox like any other, whatever became of its siblings.
 */
import { AppError, type SandboxRecord } from '@coppice/contract';
import type { ForkedVms, VmInfo } from '../../lib/protocol/runner-protocol.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';

export type ForkedChild = { record: SandboxRecord } | { error: unknown };

/** Starts all children; the results are in their order. Throws when none of them runs. */
export async function bootChildren(
  children: readonly SandboxDriver[],
  forked: Promise<ForkedVms>,
): Promise<ForkedChild[]> {
  // Each child awaits it, but maybe after it has rejected.
  forked.catch(() => undefined);
  const boots = children.map((child, index) => child.boot.join(forked.then((vms) => takeChild(vms, index))));
  const outcomes = (await Promise.allSettled(boots)).map(readOutcome);
  const [first] = outcomes;
  if (first !== undefined && 'error' in first && outcomes.every((one) => 'error' in one)) throw first.error;
  return outcomes;
}

function takeChild({ children }: ForkedVms, index: number): VmInfo {
  const child = children[index];
  if (child === undefined) throw new AppError('internal', 'the runner forgot a child');
  if ('vm' in child) return child.vm;
  throw new AppError(child.error.code, child.error.message);
}

function readOutcome(outcome: PromiseSettledResult<SandboxRecord>): ForkedChild {
  return outcome.status === 'fulfilled' ? { record: outcome.value } : { error: outcome.reason };
}

/** What a fork that nobody waits for has come to: it can be begun anew if no child of it came to run. */
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
  'the service restarted while this child was made; fork again',
);
