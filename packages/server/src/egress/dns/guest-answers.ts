/**
 * What a guest's question is answered. Under a policy that judges, only names that a connection could be allowed by are
 * asked for upstream, by a question written anew, and of the answer only what answers it comes back. Otherwise messages
 * are passed on unread but for their header and question.
 *
 * A refused name does not exist (NXDOMAIN): programs give up at once, where some take REFUSED for a reason to wait. There
 * is no SOA with it, so nobody remembers it after the policy has changed.
 */
import { isNameDenied, mayResolve, type BlockReason } from '@coppice/contract';
import type { Guest, GuestTable } from '../guest-table.ts';
import type { TtlBounds } from './dns-answer.ts';
import type { Transport } from './dns-exchange.ts';
import { DNS_RCODE, readRcode } from './dns-header.ts';
import { buildErrorAnswer, classifyQuery } from './dns-message.ts';
import { buildDnsAnswer, buildTruncatedAnswer, type DnsQuery, parseDnsQuery } from './dns-query.ts';
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
    if (!mayResolve(guest.policy, query.hostName)) return refuse(guest, query);
    if (!query.isForwarded) return buildDnsAnswer(query, DNS_RCODE.noError);
    const answer = await askFiltered(this.#options.queries, query, TTL_BOUNDS);
    if (answer === undefined) return buildDnsAnswer(query, DNS_RCODE.serverFailure);
    // The policy may be another one by now.
    if (!mayResolve(guest.policy, query.hostName)) return refuse(guest, query);
    if (answer.names.some((name) => isNameDenied(guest.policy, name))) return refuse(guest, query);
    return this.#serve(guest, transport, { query, answer });
  }

  #serve(
    guest: Guest,
    transport: Transport,
    { query, answer }: { query: DnsQuery; answer: DnsAnswer },
  ): Buffer {
    this.#options.lookups.learn(query, answer);
    if (answer.rcode === DNS_RCODE.noError) guest.count('names_resolved');
    const isTooLong = transport === 'udp' && answer.message.length > query.maxDatagramBytes;
    return isTooLong ? buildTruncatedAnswer(query) : answer.message;
  }
}

/** What is no host name cannot be told in an event, and could be a way out all the same. */
function refuseUnread(guest: Guest, answer: Buffer): Buffer {
  if (readRcode(answer) === DNS_RCODE.refused) noteRefused(guest, 'name_invalid');
  return answer;
}

function refuse(guest: Guest, query: DnsQuery): Buffer {
  const isDenied = isNameDenied(guest.policy, query.hostName);
  const reason: BlockReason = isDenied || guest.policy.default === 'allow' ? 'denied_by_rule' : 'not_allowed';
  noteRefused(guest, reason, query.hostName);
  return buildDnsAnswer(query, DNS_RCODE.noSuchName);
}

function noteRefused(guest: Guest, reason: BlockReason, domain?: string): void {
  guest.count('names_refused');
  const data = { ...(domain === undefined ? {} : { domain }), reason, count: 1 };
  guest.note({ event: 'network.blocked', ts: new Date().toISOString(), data });
}
