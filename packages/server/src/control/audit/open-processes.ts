/**
 * What runs in sandboxes and has its closing entry yet to come. Once a VM is gone its processes are told so within moments:
 * the last entry of a log waits for theirs, so that whatever has a start in it has an end.
 */
import { withDeadline } from '../../lib/waiting/deadline.ts';

/** A connection that hangs must not keep a sandbox from its end. */
const CLOSING_DEADLINE_MS = 1_000;

export class OpenProcesses {
  readonly #open = new Map<string, Set<Promise<void>>>();

  /** The result is called when the closing entry is written, or will not be. */
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

  /** Resolves when all of a sandbox's are closed, or at the deadline. */
  async closed(sandboxId: string): Promise<void> {
    const open = this.#open.get(sandboxId);
    if (open === undefined) return;
    const closing = Promise.all(open);
    await withDeadline('the closing entries', CLOSING_DEADLINE_MS, closing).catch(() => undefined);
  }
}
