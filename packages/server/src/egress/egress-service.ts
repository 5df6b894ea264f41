/**
 * Assembles the parts of the egress process. The runner's messages update the guest table, which all listeners query.
 */
import { AppError, compileClosedAddresses } from '@coppice/contract';
import type { Logger } from 'pino';
import { DnsServer } from './dns/dns-server.ts';
import { GuestAnswers } from './dns/guest-answers.ts';
import { GuestQuota, type QuotaLimits } from './dns/guest-quota.ts';
import { NameLookups } from './dns/name-lookups.ts';
import { UpstreamQueries } from './dns/upstream-queries.ts';
import { UpstreamResolvers } from './dns/upstream-resolvers.ts';
import type {
  EgressMessage,
  EgressPorts,
  EgressStart,
  RunnerMessage,
} from '../lib/protocol/egress-messages.ts';
import type { GuestTable } from './guest-table.ts';
import { HostUpstream } from './upstream/host-upstream.ts';
import { LiveGuestTable } from './live-guest-table.ts';
import { NoteOutbox } from './notes/note-outbox.ts';
import type { OriginalDestinations } from './proxy/original-destination.ts';
import { TcpProxy } from './proxy/tcp-proxy.ts';
import type { Upstream } from './upstream/upstream.ts';

const QUOTA: QuotaLimits = { ratePerSecond: 100, burst: 500, inFlight: 64, connections: 16 };

/** The parts that a listener needs to serve guests. */
interface ListenerParts {
  address: string;
  guests: GuestTable;
  upstream: Upstream;
  log: Logger;
}

/** Options of {@link openEgressService}. `maxFlows` is the maximum number of relayed TCP connections of all guests. */
export interface EgressServiceOptions {
  start: EgressStart;
  send: (message: EgressMessage) => void;
  openCredentials(parts: ListenerParts): Promise<AsyncDisposable & { readonly port: number }>;
  maxFlows: number;
  destinations: Pick<OriginalDestinations, 'find'>;
  log: Logger;
}

/** The running listeners of the egress process. */
export interface EgressService extends AsyncDisposable {
  ports: EgressPorts;
  /** Applies a message of the runner. The change is in force, and the answer is sent, when it returns. */
  hear(message: Exclude<RunnerMessage, EgressStart>): void;
}

/** Opens the resolver, the TCP proxy and the credential proxy. Rejects if an address cannot be bound. */
export async function openEgressService(options: EgressServiceOptions): Promise<EgressService> {
  const { start, send, log } = options;
  const address = start.resolver;
  const outbox = new NoteOutbox({ send: (id, notes) => send({ type: 'notes', id, notes }) });
  const quota = new GuestQuota(QUOTA);
  await using opened = new AsyncDisposableStack();
  const guests = new LiveGuestTable({
    closed: compileClosedAddresses(start.closed),
    outbox,
    onForget: (guest) => dns.forgetGuest(guest),
  });
  const queries = new UpstreamQueries({ listUpstreams: buildUpstreams(start, log), log });
  const lookups = new NameLookups(queries);
  const answers = new GuestAnswers({ guests, queries, lookups });
  const answer = answers.answer.bind(answers);
  const dns: DnsServer = opened.use(await DnsServer.listen({ address, answer, quota, log }));
  const parts = { address, guests, upstream: new HostUpstream({ lookups, quota }), log };
  const proxy = opened.use(
    await TcpProxy.listen({
      ...parts,
      maxFlows: options.maxFlows,
      findDestination: (socket) => options.destinations.find(socket),
    }),
  );
  const credentials = opened.use(await options.openCredentials(parts));
  const resources = opened.move();
  return {
    ports: {
      dnsUdp: dns.ports.udp,
      dnsTcp: dns.ports.tcp,
      proxy: proxy.port,
      credentials: credentials.port,
    },
    hear: (message) => hear(message, { guests, outbox, send }),
    [Symbol.asyncDispose]: () => resources.disposeAsync(),
  };
}

interface HearingParts {
  guests: LiveGuestTable;
  outbox: NoteOutbox;
  send: (message: EgressMessage) => void;
}

function hear(message: Exclude<RunnerMessage, EgressStart>, { guests, outbox, send }: HearingParts): void {
  const answerDone = (error?: string): void => {
    outbox.flush();
    send({ type: 'done', id: message.id, ...(error === undefined ? {} : { error }) });
  };
  switch (message.type) {
    case 'guest':
      return answerDone(catchMessage(() => guests.set(message)));
    case 'forget':
      guests.forget(message.address);
      return answerDone();
    case 'closed':
      guests.setClosed(compileClosedAddresses(message.closed));
      return answerDone();
    case 'counters':
      return send({ type: 'counters', id: message.id, counters: guests.countersOf(message.address) });
    case 'noted':
      return outbox.acknowledge(message.id);
  }
}

/** Returns the message of an `AppError`, which may contain rules of the policy but no secret. Rethrows other errors. */
function catchMessage(work: () => void): string | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    if (error instanceof AppError) return error.message;
    throw error;
  }
}

function buildUpstreams({ resolver, resolvers }: EgressStart, log: Logger) {
  const configured = resolvers.length === 0 ? undefined : resolvers;
  const upstreams = new UpstreamResolvers({ configured, excluded: [resolver], log });
  return () => upstreams.list();
}
