/**
 * Processes in sandboxes whose closing entry is still to be written. After the end of a VM its streams break within
 * moments. The last entry of a log waits for their closing entries, so that each start in a log has an end.
 */
import { withDeadline } from '../../lib/waiting/deadline.ts';

/** A connection that hangs must not keep a sandbox from its end. */
const CLOSING_DEADLINE_MS = 1_000;

export class OpenProcesses {
  readonly #open = new Map<string, Set<Promise<void>>>();

  /** Registers a process. Call the result when its closing entry is written, or never will be. */
  add(sandboxId: string): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    const open = this.#open.get(sandboxId) ?? new Set();
    this.#open.set(sandboxId, open.add(promise));
    return () => {
      resolve();
      open.delete(promise);
      if (open.size === 0 && this.#open.get(sandboxId) === open) this.#open.delete(sandboxId);
    };
  }

  /** Resolves when all processes of a sandbox are closed, or at the deadline. */
  async closed(sandboxId: string): Promise<void> {
    const open = this.#open.get(sandboxId);
    if (open === undefined) return;
    const closing = Promise.all(open);
    await withDeadline('the closing entries', CLOSING_DEADLINE_MS, closing).catch(() => undefined);
  }
}
