/**
 * Answers the questions of guests. Under a policy that the proxy enforces, the resolver asks upstream only for names to
 * which the policy could allow a connection. It writes the question anew and returns only records that answer it.
 * Without such a policy, messages are forwarded, and only their header and question are read.
 *
 * If only an address rule could allow the addresses of a name, the answer contains the allowed addresses and nothing
 * else. Questions for other types get an empty answer and are not sent upstream.
 *
 * A refused name is answered NXDOMAIN: programs then fail at once, while some wait after REFUSED. The answer has no
 * SOA, so that no client caches it beyond a change of the policy. A name without an allowed address is refused.
 */
import {
  isNameDenied,
  judgeQuestion,
  judgeResolved,
  type BlockReason,
  type NameResolution,
} from '@coppice/contract';
import type { Guest, GuestTable } from '../guest-table.ts';
import { buildAddressAnswer, type TtlBounds } from './dns-answer.ts';
import type { Transport } from './dns-exchange.ts';
import { DNS_RCODE, readRcode } from './dns-header.ts';
import { buildErrorAnswer, classifyQuery } from './dns-message.ts';
import { buildDnsAnswer, buildTruncatedAnswer, DNS_TYPE, type DnsQuery, parseDnsQuery } from './dns-query.ts';
import { askFiltered, type DnsAnswer, type NameLookups } from './name-lookups.ts';
import type { UpstreamQueries } from './upstream-queries.ts';

/** In seconds. Connections are dialled by the host's own look-ups, so a guest gains nothing by keeping old answers. */
const TTL_BOUNDS: TtlBounds = { min: 1, max: 300 };

export interface GuestAnswersOptions {
  guests: GuestTable;
  queries: UpstreamQueries;
  lookups: NameLookups;
}

/** The answers described above. */
export class GuestAnswers {
  readonly #options: GuestAnswersOptions;

  constructor(options: GuestAnswersOptions) {
    this.#options = options;
  }

  /** Answers a message of a guest. Resolves with undefined when the guest gets no answer. */
  async answer(transport: Transport, message: Buffer, guestAddress: string): Promise<Buffer | undefined> {
    const guest = this.#options.guests.findByAddress(guestAddress);
    if (guest?.policy.path === 'proxy') return this.#answerJudged(guest, transport, message);
    const verdict = classifyQuery(message);
    if (verdict.kind === 'ignore') return undefined;
    if (verdict.kind === 'refuse') return buildErrorAnswer(message, verdict.rcode);
    // The runner has not yet registered this guest. A failure makes the guest ask again.
    const answer = guest && (await this.#options.queries.ask(transport, message, (received) => received));
    if (guest === undefined || answer === undefined)
      return buildErrorAnswer(message, DNS_RCODE.serverFailure);
    if (readRcode(answer) === DNS_RCODE.noError) guest.count('names_resolved');
    return answer;
  }

  async #answerJudged(guest: Guest, transport: Transport, message: Buffer): Promise<Buffer | undefined> {
    const parsed = parseDnsQuery(message);
    if (parsed.kind === 'ignore') return undefined;
    if (parsed.kind === 'refuse') return refuseUnread(guest, parsed.answer);
    const { query } = parsed;
    const resolution = judgeQuestion(guest.policy, query.hostName);
    if (resolution === 'refused') return refuse(guest, query, findReason(guest, query));
    if (!isAsked(query, resolution)) return buildDnsAnswer(query, DNS_RCODE.noError);
    const answer = await askFiltered(this.#options.queries, query, TTL_BOUNDS);
    if (answer === undefined) return buildDnsAnswer(query, DNS_RCODE.serverFailure);
    this.#options.lookups.learn(query, answer);
    const served = buildServed(guest, query, answer);
    return transport === 'udp' && served.length > query.maxDatagramBytes
      ? buildTruncatedAnswer(query)
      : served;
  }
}

/** Builds the answer under the current policy, which may have changed since the question. */
function buildServed(guest: Guest, query: DnsQuery, answer: DnsAnswer): Buffer {
  const resolution = judgeQuestion(guest.policy, query.hostName);
  if (resolution === 'refused') return refuse(guest, query, findReason(guest, query));
  if (answer.names.some((name) => isNameDenied(guest.policy, name)))
    return refuse(guest, query, 'denied_by_rule');
  const message = resolution === 'any_address' ? answer.message : restrict(guest, query, answer);
  if (readRcode(message) === DNS_RCODE.noError) guest.count('names_resolved');
  return message;
}

function isAsked({ type, isForwarded }: DnsQuery, resolution: NameResolution): boolean {
  return isForwarded && (resolution === 'any_address' || type === DNS_TYPE.a);
}

/** Restricts an answer to the addresses that an address rule allows. */
function restrict(guest: Guest, query: DnsQuery, { rcode, addresses, ttl = 0 }: DnsAnswer): Buffer {
  // The policy has changed since this question for another type was sent upstream.
  if (query.type !== DNS_TYPE.a) return buildDnsAnswer(query, DNS_RCODE.noError);
  const [first] = addresses;
  if (first === undefined) return buildDnsAnswer(query, rcode);
  const judged = addresses.map((address) => judgeResolved(guest.policy, query.hostName, address));
  const allowed = addresses.filter((_, index) => judged[index]?.action === 'allow');
  if (allowed.length > 0) return buildAddressAnswer(query, allowed, ttl);
  const [verdict] = judged;
  return refuse(guest, query, verdict?.action === 'deny' ? verdict.reason : 'not_allowed', first);
}

/**
 * Refuses a name that is not a host name. It is noted without the name, because it could carry data out all the same.
 */
function refuseUnread(guest: Guest, answer: Buffer): Buffer {
  if (readRcode(answer) === DNS_RCODE.refused) noteRefused(guest, { reason: 'name_invalid' });
  return answer;
}

function findReason({ policy }: Guest, { hostName }: DnsQuery): BlockReason {
  return isNameDenied(policy, hostName) ? 'denied_by_rule' : 'not_allowed';
}

function refuse(guest: Guest, query: DnsQuery, reason: BlockReason, ip?: string): Buffer {
  noteRefused(guest, { domain: query.hostName, ...(ip === undefined ? {} : { ip }), reason });
  return buildDnsAnswer(query, DNS_RCODE.noSuchName);
}

function noteRefused(guest: Guest, refused: { domain?: string; ip?: string; reason: BlockReason }): void {
  guest.count('names_refused');
  guest.note({ event: 'network.blocked', ts: new Date().toISOString(), data: { ...refused, count: 1 } });
}
