/** How a sandbox is used, as SQL has it for controls without its driver: see stored-state.ts. */
import type { SandboxOperation } from '@coppice/contract';
import type { SandboxRow } from '../record/sandbox-tables.ts';

/** An idle time is known to a few milliseconds. */
const SAME_MS = 100;

export interface Use {
  /** Unix milliseconds of the last request. */
  lastActiveAt: number;
  /** Whether requests are open. */
  isInUse: boolean;
  operation: SandboxOperation | null;
}

export class RecordedUse {
  /** Undefined if SQL may have another one. */
  #use: Use | undefined;

  /**
   * Of a row that was just inserted, or adopted with its runner, and so is not in use. One that was adopted hibernated may have the use
   * of before its hibernation, at another control.
   */
  constructor({ status, last_active_at }: Readonly<SandboxRow>) {
    if (status !== 'hibernated')
      this.#use = { lastActiveAt: last_active_at, isInUse: false, operation: null };
  }

  /** Returns whether SQL must be written. */
  differs(use: Use): boolean {
    const recorded = this.#use;
    return (
      recorded === undefined ||
      recorded.isInUse !== use.isInUse ||
      recorded.operation !== use.operation ||
      Math.abs(recorded.lastActiveAt - use.lastActiveAt) > SAME_MS
    );
  }

  note(use: Use): void {
    this.#use = use;
  }

  /** Notes a change by the driver, which clears the operation in SQL. */
  noteCommit({ last_active_at }: Readonly<SandboxRow>): void {
    if (this.#use === undefined) return;
    this.#use = this.#use.operation === null ? { ...this.#use, lastActiveAt: last_active_at } : undefined;
  }
}
