/**
 * One session with an agent, shared by all callers. It is opened when first needed and reopened after a loss. Callers
 * share an opening, which has its own deadlines. Each caller waits for it with its own deadline, which ends nothing for
 * the others.
 */
import { DeadlineError, withDeadline } from '../../lib/waiting/deadline.ts';
import type { AgentSession } from './agent-session.ts';

type Session = Pick<AgentSession, 'closed' | 'close'>;

export class SharedSession<T extends Session = AgentSession> {
  readonly #open: () => Promise<T>;
  #session: T | undefined;
  #opening: Promise<T> | undefined;

  /** `open` must reject with DeadlineError when the agent does not answer in time. */
  constructor(open: () => Promise<T>) {
    this.#open = open;
  }

  /** Returns the open session. Throws DeadlineError after `timeoutMs`, or the error of the opening. */
  async get(timeoutMs: number): Promise<T> {
    if (this.#session !== undefined && !this.#session.closed) return this.#session;
    const left = new AbortController();
    const opening = this.#join(left.signal);
    return withDeadline('the session with the agent', timeoutMs, opening, () => left.abort());
  }

  close(): void {
    this.#session?.close();
  }

  /**
   * An opening that another caller started may reach its deadline before this caller does. Then this caller joins the
   * next one.
   */
  async #join(left: AbortSignal): Promise<T> {
    for (;;) {
      this.#opening ??= this.#openOnce();
      try {
        return await this.#opening;
      } catch (error) {
        if (!(error instanceof DeadlineError) || left.aborted) throw error;
      }
    }
  }

  async #openOnce(): Promise<T> {
    try {
      this.#session = await this.#open();
      return this.#session;
    } finally {
      this.#opening = undefined;
    }
  }
}
