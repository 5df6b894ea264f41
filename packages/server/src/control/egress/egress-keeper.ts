/**
 * Sends the stored policy and credentials of sandboxes to the runner again: after the runner was down, as it keeps no
 * secrets on disk, and after a change whose outcome is unknown. Failed sends wait for the next round.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';

const MAX_AT_ONCE = 8;

export interface TellableSandbox {
  egress: {
    /** Sends the stored policy and credentials. Resolves with false if it must be tried again. */
    tellAgain(): Promise<boolean>;
  };
}

/** Returns undefined if the sandbox has ended. */
export type FindSandbox = (id: string) => TellableSandbox | undefined;

export class EgressKeeper {
  readonly #log: Logger;
  readonly #stale = new Set<string>();
  #round: Promise<void> | undefined;

  constructor(log: Logger) {
    this.#log = log;
  }

  mark(id: string): void {
    this.#stale.add(id);
  }

  /** Marks these sandboxes and sends for them. Resolves when each has been tried. Never rejects. */
  async tellAtOnce(ids: readonly string[], find: FindSandbox): Promise<void> {
    for (const id of ids) this.mark(id);
    // A round that is under way may have read the stored settings before they changed.
    await this.#round;
    await this.tell(find);
  }

  /** Sends for all marked sandboxes, or joins the round that is under way. Never rejects. */
  tell(find: FindSandbox): Promise<void> {
    this.#round ??= this.#tellAll(find).finally(() => (this.#round = undefined));
    return this.#round;
  }

  async #tellAll(find: FindSandbox): Promise<void> {
    const waiting = [...this.#stale];
    const worker = async (): Promise<void> => {
      for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) await this.#tellOne(id, find(id));
    };
    await Promise.all(Array.from({ length: MAX_AT_ONCE }, worker));
  }

  async #tellOne(id: string, sandbox: TellableSandbox | undefined): Promise<void> {
    // A sandbox that is marked meanwhile waits for the next round.
    this.#stale.delete(id);
    try {
      if (sandbox !== undefined && !(await sandbox.egress.tellAgain())) this.#stale.add(id);
    } catch (error) {
      if (!isHopeless(error)) this.#stale.add(id);
      this.#log.warn(
        { err: error, sandbox_id: id },
        'the network policy of a sandbox could not be sent to the runner',
      );
    }
  }
}

/** Returns whether a retry is useless: the VM is gone, which is detected elsewhere, or there is nothing to send. */
function isHopeless(error: unknown): boolean {
  const codes: ReadonlySet<string> = new Set(['not_found', 'invalid_request', 'secret_unreadable']);
  return error instanceof AppError && codes.has(error.code);
}
