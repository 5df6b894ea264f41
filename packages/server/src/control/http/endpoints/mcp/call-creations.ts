/**
 * Sandboxes that one call of a tool creates. No caller receives their ids if the call is cancelled, its client leaves
 * or its key is revoked, and without an idle timeout they would run for ever. So control destroys them itself: the key may be
 * invalid by then, the rate limit reached, or the service shutting down.
 */
import { isFinal } from '@coppice/contract';
import type { FastifyBaseLogger } from 'fastify';
import type { Reach } from '../../../accounts/organizations/reach.ts';
import type { Sandboxes } from '../../../sandbox/sandboxes.ts';
import type { CreateForCall } from '../../serving/in-process-fetch.ts';

const ATTEMPTS = 5;
const RETRY_MS = 1000;

interface Creation {
  ids: readonly string[];
  /** Resolves when the create is over, whatever its outcome. */
  over: Promise<void>;
}

export interface CallCreationsParts {
  reach: Reach;
  sandboxes: Pick<Sandboxes, 'find' | 'getDriver'>;
  log: Pick<FastifyBaseLogger, 'info' | 'warn'>;
  retryMs?: number;
}

export class CallCreations {
  readonly #parts: CallCreationsParts;
  readonly #creations: Creation[] = [];

  constructor(parts: CallCreationsParts) {
    this.#parts = parts;
  }

  /** Runs a create of the call. `ids`: of the sandboxes that it may make. */
  readonly create: CreateForCall = (ids, create) => {
    const made = create();
    const over = made.then(
      () => undefined,
      () => undefined,
    );
    this.#creations.push({ ids, over });
    return made;
  };

  /** Destroys what the call created, and what it is still creating. Never rejects: a failure is logged. */
  async discard(): Promise<void> {
    for (const { ids, over } of this.#creations) {
      await over;
      for (const id of ids) await this.#destroy(id);
    }
  }

  async #destroy(id: string): Promise<void> {
    const { log, retryMs = RETRY_MS } = this.#parts;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#destroyOnce(id);
      } catch (error) {
        if (attempt === ATTEMPTS) {
          const fields = { err: error, sandbox_id: id };
          return log.warn(fields, 'a sandbox whose caller has left could not be destroyed, and stays');
        }
        await new Promise((resolve) => setTimeout(resolve, retryMs * attempt));
      }
    }
  }

  async #destroyOnce(id: string): Promise<void> {
    const { reach, sandboxes, log } = this.#parts;
    const record = await sandboxes.find(reach, id);
    // The create has failed, or its insert was undone.
    if (record === undefined || isFinal(record.status)) return;
    const driver = await sandboxes.getDriver(reach, id, 'destroy');
    await driver.destroy();
    log.info({ sandbox_id: id }, 'a sandbox whose caller has left was destroyed');
  }
}
