import type { Logger } from 'pino';
import { exchange, type Transport } from './dns-exchange.ts';
import type { UpstreamResolver } from './upstream-resolvers.ts';

/**
 * Timeout for one attempt. A guest's own resolver gives up after 5 s, which must suffice for two attempts at two
 * resolvers.
 */
const ATTEMPT_TIMEOUT_MS = 1200;
const MAX_ATTEMPTS = 4;

export interface UpstreamQueriesOptions {
  listUpstreams(): Promise<readonly UpstreamResolver[]>;
  log: Logger;
}

/** Asks the upstream resolvers in turn, each twice. */
export class UpstreamQueries {
  readonly #options: UpstreamQueriesOptions;
  /**
   * Address of the resolver that answered last. It is asked first, so that a dead resolver costs its timeout only once.
   */
  #lastGood: string | undefined;

  constructor(options: UpstreamQueriesOptions) {
    this.#options = options;
  }

  /** Resolves with the first result of `read` other than undefined, or with undefined if no answer has one. */
  async ask<T>(
    transport: Transport,
    query: Buffer,
    read: (answer: Buffer) => T | undefined,
  ): Promise<T | undefined> {
    for (const upstream of await this.#attempts()) {
      const result = await this.#askOne(transport, upstream, query).then((answer) => answer && read(answer));
      if (result === undefined) continue;
      this.#lastGood = upstream.address;
      return result;
    }
    return undefined;
  }

  async #askOne(
    transport: Transport,
    upstream: UpstreamResolver,
    query: Buffer,
  ): Promise<Buffer | undefined> {
    try {
      return await exchange(transport, upstream, query, ATTEMPT_TIMEOUT_MS);
    } catch (error) {
      const { address } = upstream;
      this.#options.log.debug({ err: error, upstream: address }, 'no answer from upstream resolver');
      return undefined;
    }
  }

  async #attempts(): Promise<UpstreamResolver[]> {
    const known = await this.#listUpstreams();
    const isLastGood = (upstream: UpstreamResolver) => upstream.address === this.#lastGood;
    const ordered = [...known.filter(isLastGood), ...known.filter((upstream) => !isLastGood(upstream))];
    return [...ordered, ...ordered].slice(0, MAX_ATTEMPTS);
  }

  async #listUpstreams(): Promise<readonly UpstreamResolver[]> {
    try {
      return await this.#options.listUpstreams();
    } catch (error) {
      this.#options.log.warn({ err: error }, "the host's DNS resolvers cannot be read");
      return [];
    }
  }
}
