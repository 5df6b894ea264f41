/**
 * Finds the sandboxes at runners of this control that use an outdated value of a named secret: it was stored at another control, or
 * while this one was away. A value that cannot be sent is left to the egress keeper, and found again after a while.
 */
import type { Logger } from 'pino';
import type { NamedSecretStore, OutdatedSandbox } from './named-secret-store.ts';

const LOOK_EVERY_MS = 2_000;
const RETRY_MS = 60_000;

export interface SecretWatchParts {
  store: Pick<NamedSecretStore, 'listOutdated'>;
  /** Id of this control. */
  control: string;
  /** Sends stored credentials to these sandboxes. Resolves when each has been tried, and never rejects. */
  tell: (sandboxIds: readonly string[]) => Promise<void>;
  log: Logger;
}

export class SecretWatch implements AsyncDisposable {
  readonly #parts: SecretWatchParts;
  readonly #timer: NodeJS.Timeout;
  /** The values that were sent last, and when; by sandbox. */
  #sent = new Map<string, { versions: number; atMs: number }>();
  #looking: Promise<void> | undefined;

  constructor(parts: SecretWatchParts, intervalMs = LOOK_EVERY_MS) {
    this.#parts = parts;
    this.#timer = setInterval(() => this.wake(), intervalMs);
  }

  /** Looks now. */
  wake(): void {
    this.#looking ??= this.#look().finally(() => (this.#looking = undefined));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#looking;
  }

  async #look(): Promise<void> {
    const { store, control, tell, log } = this.#parts;
    try {
      const outdated = await store.listOutdated(control);
      const due = outdated.filter((one) => this.#isDue(one));
      const atMs = performance.now();
      const waiting = outdated.flatMap(({ id }) => {
        const sent = this.#sent.get(id);
        return sent === undefined ? [] : [[id, sent] as const];
      });
      const sending = due.map(({ id, versions }) => [id, { versions, atMs }] as const);
      this.#sent = new Map([...waiting, ...sending]);
      if (due.length > 0) await tell(due.map(({ id }) => id));
    } catch (error) {
      log.debug({ err: error }, 'control looks later for outdated values of secrets');
    }
  }

  #isDue({ id, versions }: OutdatedSandbox): boolean {
    const sent = this.#sent.get(id);
    return sent === undefined || sent.versions !== versions || performance.now() - sent.atMs > RETRY_MS;
  }
}
