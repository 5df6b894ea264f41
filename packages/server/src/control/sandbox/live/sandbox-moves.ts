import type { OwnedRunner } from '../../runners/owned-runner.ts';
import type { SandboxRow } from '../record/sandbox-tables.ts';

/** The runners of a hibernated sandbox that is to be resumed. */
export interface SandboxMoves {
  /** Marks it as being resumed at `to`. Throws if it may not: its organization lacks credit or quota, or it was changed. */
  reserve: (row: SandboxRow, ends: { from: OwnedRunner; to: OwnedRunner }) => Promise<SandboxRow>;
  /** Gives it to a runner of another control. */
  handOver: (row: SandboxRow, ends: { from: OwnedRunner; to: string }) => Promise<SandboxRow>;
  /** Call when its row names another runner of this control. */
  follow: (runner: OwnedRunner) => void;
}
