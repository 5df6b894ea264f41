/**
 * Resolves the names that this process dials, with one cache for all guests: an upstream's answer depends on no policy,
 * and the policy of each guest judges it. After a guest has asked the resolver for a name, its connection is dialled
 * from the same answer, so that the address it chose is one of the name's addresses.
 */
import { SingleFlight } from '../../lib/waiting/single-flight.ts';
import { filterDnsAnswer, type DnsAnswerResult, type TtlBounds } from './dns-answer.ts';
import { buildUpstreamQuery, DNS_TYPE, type DnsQuery, parseDnsQuery } from './dns-query.ts';
import type { UpstreamQueries } from './upstream-queries.ts';

/**
 * In seconds. The maximum follows a moved name soon. The minimum lets a TTL of 0 serve the connection it was asked for.
 */
const TTL_BOUNDS: TtlBounds = { min: 5, max: 60 };
const MAX_NAMES = 4096;
const HEADER = Buffer.from('000001000001000000000000', 'hex');
const A_IN_INTERNET = Buffer.from([0, DNS_TYPE.a, 0, 1]);

export type DnsAnswer = Extract<DnsAnswerResult, { kind: 'answer' }>;

/** A resolved name. */
export interface FoundName {
  /** The name, and the names at which its aliases point. */
  names: readonly string[];
  /** IPv4 addresses. Empty if the name has none. */
  addresses: readonly string[];
}

interface CachedName extends FoundName {
  staleAtMs: number;
}

/**
 * Sends a question over UDP, and again over TCP if the answer was truncated. Resolves with undefined if no resolver
 * answered.
 */
export async function askFiltered(
  queries: UpstreamQueries,
  query: DnsQuery,
  bounds: TtlBounds,
): Promise<DnsAnswer | undefined> {
  const asked = buildUpstreamQuery(query, 0);
  const read = (message: Buffer) => {
    const result = filterDnsAnswer(query, message, bounds);
    return result.kind === 'malformed' ? undefined : result;
  };
  let result = await queries.ask('udp', asked, read);
  if (result?.kind === 'truncated') result = await queries.ask('tcp', asked, read);
  return result?.kind === 'answer' ? result : undefined;
}

/** The look-ups described above. */
export class NameLookups {
  readonly #queries: UpstreamQueries;
  readonly #nowMs: () => number;
  readonly #flights = new SingleFlight<FoundName | undefined>();
  readonly #cache = new Map<string, CachedName>();

  constructor(queries: UpstreamQueries, nowMs: () => number = () => performance.now()) {
    this.#queries = queries;
    this.#nowMs = nowMs;
  }

  findCached(name: string): FoundName | undefined {
    const cached = this.#cache.get(name);
    return cached !== undefined && cached.staleAtMs > this.#nowMs() ? cached : undefined;
  }

  /** Returns the look-up of the name that has been asked and not answered. */
  findOpen(name: string): Promise<FoundName | undefined> | undefined {
    return this.#flights.find(name);
  }

  /**
   * Resolves a name. Concurrent calls for a name share one question. Resolves with undefined if no resolver answered.
   */
  lookUp(name: string): Promise<FoundName | undefined> {
    const cached = this.findCached(name);
    if (cached !== undefined) return Promise.resolve(cached);
    return this.#flights.run(name, () => this.#ask(name));
  }

  /** Caches an answer that a guest received. */
  learn(query: DnsQuery, answer: DnsAnswer): void {
    if (query.type !== DNS_TYPE.a || answer.addresses.length === 0) return;
    const ttl = Math.min(Math.max(answer.ttl ?? 0, TTL_BOUNDS.min), TTL_BOUNDS.max);
    const { names, addresses } = answer;
    this.#cache.delete(query.hostName);
    this.#cache.set(query.hostName, { names, addresses, staleAtMs: this.#nowMs() + ttl * 1000 });
    const [oldest] = this.#cache.keys();
    if (this.#cache.size > MAX_NAMES && oldest !== undefined) this.#cache.delete(oldest);
  }

  async #ask(name: string): Promise<FoundName | undefined> {
    const parsed = parseDnsQuery(buildQuestionFor(name));
    if (parsed.kind !== 'query') return undefined;
    const answer = await askFiltered(this.#queries, parsed.query, TTL_BOUNDS);
    if (answer === undefined) return undefined;
    this.learn(parsed.query, answer);
    return answer;
  }
}

function buildQuestionFor(name: string): Buffer {
  const labels = name.split('.').map((label) => {
    const bytes = Buffer.from(label, 'latin1');
    return Buffer.concat([Buffer.from([bytes.length]), bytes]);
  });
  return Buffer.concat([HEADER, ...labels, Buffer.from([0]), A_IN_INTERNET]);
}
