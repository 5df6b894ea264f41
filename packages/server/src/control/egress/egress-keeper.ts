/**
 * Has runners told again what is stored of a sandbox's way out: after a runner was away, as it keeps no secrets on disk, and
 * after a change of which it is not known how far it got. What fails waits for the next round.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';

const MAX_AT_ONCE = 8;

export interface TellableSandbox {
  egress: {
    /** False when it is to be tried again. */
    tellAgain(): Promise<boolean>;
  };
}

/** Undefined when it has ended. */
type FindSandbox = (id: string) => TellableSandbox | undefined;

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

  /** Joins the round that is under way. Never rejects. */
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
    // One that is marked meanwhile is told once more.
    this.#stale.delete(id);
    try {
      if (sandbox !== undefined && !(await sandbox.egress.tellAgain())) this.#stale.add(id);
    } catch (error) {
      if (!isHopeless(error)) this.#stale.add(id);
      this.#log.warn({ err: error, sandbox_id: id }, 'the runner could not be told what a sandbox may reach');
    }
  }
}

/** The VM is gone, which is found out elsewhere, or there is nothing that could be told. */
function isHopeless(error: unknown): boolean {
  const codes: ReadonlySet<string> = new Set(['not_found', 'invalid_request', 'secret_unreadable']);
  return error instanceof AppError && codes.has(error.code);
}
