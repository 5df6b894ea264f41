/**
 * What a guest's question is answered. Under a policy that judges, only names that a connection could be allowed by are
 * asked for upstream, by a question written anew, and of the answer only what answers it comes back. Otherwise messages
 * are passed on unread but for their header and question.
 *
 * Where only an address rule could allow what a name leads to, the answer holds the addresses that are allowed and nothing
 * else; questions for other types are answered empty, and asked of nobody.
 *
 * A refused name does not exist (NXDOMAIN): programs give up at once, where some take REFUSED for a reason to wait. There
 * is no SOA with it, so nobody remembers it after the policy has changed. A name without an allowed address is refused.
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

/** Seconds. Connections are dialled by our own answers, so a guest gains nothing by keeping old ones. */
const TTL_BOUNDS: TtlBounds = { min: 1, max: 300 };

export interface GuestAnswersOptions {
  guests: GuestTable;
  queries: UpstreamQueries;
  lookups: NameLookups;
}

export class GuestAnswers {
  readonly #options: GuestAnswersOptions;

  constructor(options: GuestAnswersOptions) {
    this.#options = options;
  }

  /** undefined when the guest gets no answer. */
  async answer(transport: Transport, message: Buffer, guestAddress: string): Promise<Buffer | undefined> {
    const guest = this.#options.guests.findByAddress(guestAddress);
    if (guest?.policy.path === 'proxy') return this.#answerJudged(guest, transport, message);
    const verdict = classifyQuery(message);
    if (verdict.kind === 'ignore') return undefined;
    if (verdict.kind === 'refuse') return buildErrorAnswer(message, verdict.rcode);
    // A guest that we were not told of yet asks again.
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

/** Under the policy as it is by now. */
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

/** To the addresses that an address rule allows. */
function restrict(guest: Guest, query: DnsQuery, { rcode, addresses, ttl = 0 }: DnsAnswer): Buffer {
  // The policy has changed since another type was asked for.
  if (query.type !== DNS_TYPE.a) return buildDnsAnswer(query, DNS_RCODE.noError);
  const [first] = addresses;
  if (first === undefined) return buildDnsAnswer(query, rcode);
  const judged = addresses.map((address) => judgeResolved(guest.policy, query.hostName, address));
  const allowed = addresses.filter((_, index) => judged[index]?.action === 'allow');
  if (allowed.length > 0) return buildAddressAnswer(query, allowed, ttl);
  const [verdict] = judged;
  return refuse(guest, query, verdict?.action === 'deny' ? verdict.reason : 'not_allowed', first);
}

/** What is no host name cannot be told in an event, and could be a way out all the same. */
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
