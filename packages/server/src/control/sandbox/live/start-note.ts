/** Times the start of a sandbox's VM. */
import type { ErrorCode } from '@coppice/contract';
import { AppError } from '@coppice/contract';
import type { VmInfo } from '../../../lib/protocol/runner-protocol.ts';

export type StartKind = 'create' | 'restore' | 'fork' | 'resume';

export interface StartNote {
  kind: StartKind;
  outcome: 'ok' | ErrorCode;
  durationMs: number;
  /** Duration of each step in the runner, in milliseconds; empty after a failure. */
  timingsMs: VmInfo['timings_ms'];
}

export type NoteStart = (note: StartNote) => void;

/** Runs a start and reports it to `note`, which never throws. */
export async function timeStart(
  kind: StartKind,
  start: () => Promise<VmInfo>,
  note: NoteStart,
): Promise<VmInfo> {
  const startedAt = performance.now();
  const measure = (outcome: StartNote['outcome'], timingsMs: VmInfo['timings_ms'] = {}): void =>
    note({ kind, outcome, durationMs: performance.now() - startedAt, timingsMs });
  try {
    const vm = await start();
    measure('ok', vm.timings_ms);
    return vm;
  } catch (error) {
    measure(error instanceof AppError ? error.code : 'internal');
    throw error;
  }
}
