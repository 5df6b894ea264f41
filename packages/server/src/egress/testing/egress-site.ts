/**
 * The service of the egress process in a namespace that is host, guests and internet at once. All of them are addresses
 * on its loopback. Real rules redirect the connections of guests, with a zone in the original direction, as the
 * runner's do.
 */
import { startDestinations } from './own-destinations.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { buildNetworkPolicy, buildRuleContext } from '@coppice/contract';
import { pino } from 'pino';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import type { JudgedCounters, EgressNote, VmEgress } from '../../lib/protocol/egress-protocol.ts';
import { enterHostNamespace } from '../../runner/network/testing/host-namespace.ts';
import { NameServer } from '../dns/testing/name-server.ts';
import type { Ask, EgressMessage, EgressStart } from '../../lib/protocol/egress-messages.ts';
import { openEgressService, type EgressService } from '../egress-service.ts';

export const RESOLVER = '10.202.255.1';
export const GUEST = '10.202.0.2';
export const OTHER_GUEST = '10.202.0.3';
export const SERVER = '203.0.113.10';
export const OTHER_SERVER = '203.0.113.11';
const NAME_SERVER = '203.0.113.53';
const GUESTS = '10.202.0.0/16';
const TIMEOUT_MS = 10_000;

export interface Rules {
  allow?: string[];
  deny?: string[];
}

/** Builds the policy and grants as control stores them. */
export function buildEgress(rules: Rules, grants: VmEgress['grants'] = []): VmEgress {
  const context = buildRuleContext({ openPrivateRanges: [], registries: {} });
  const options = { field: 'network', context };
  const { policy } = buildNetworkPolicy({ allow: [], deny: [], ...rules }, options);
  return { network: policy, grants };
}

export class EgressSite implements AsyncDisposable {
  readonly #resources = new AsyncDisposableStack();
  readonly #answers = new Map<number, (message: EgressMessage) => void>();
  #service: EgressService | undefined;
  #lastId = 0;
  readonly notes: { vmId: string; note: EgressNote }[] = [];
  /** Ids of batches that were not acknowledged. */
  readonly unacknowledged: number[] = [];
  readonly #nameServer = new NameServer();
  acknowledges = true;

  /** Name → addresses. */
  get names(): Map<string, string[]> {
    return this.#nameServer.names;
  }

  /** Alias → target name. */
  get aliases(): Map<string, string> {
    return this.#nameServer.aliases;
  }

  /** Delays the answers of the resolver. */
  delayAnswers(delayMs: number): void {
    this.#nameServer.delayMs = delayMs;
  }

  get askedTypes(): ReadonlySet<number> {
    return this.#nameServer.askedTypes;
  }

  get asked(): string[] {
    return this.#nameServer.asked;
  }

  static async open({ maxFlows = 10_000 } = {}): Promise<EgressSite> {
    const site = new EgressSite();
    try {
      site.#resources.use(enterHostNamespace());
      for (const address of [RESOLVER, GUEST, OTHER_GUEST, SERVER, OTHER_SERVER, NAME_SERVER])
        execFileSync('ip', ['address', 'add', `${address}/32`, 'dev', 'lo']);
      site.#resources.use(site.#nameServer);
      await site.#nameServer.listen(NAME_SERVER);
      await site.#openService(maxFlows);
      return site;
    } catch (error) {
      await site[Symbol.asyncDispose]();
      throw error;
    }
  }

  get ports() {
    assert.ok(this.#service);
    return this.#service.ports;
  }

  async setGuest(rules: Rules, address = GUEST, vmId = `vm-${address}`): Promise<void> {
    const answer = await this.#ask({ type: 'guest', address, vmId, egress: buildEgress(rules) });
    assert.deepEqual(answer, { type: 'done', id: answer.id });
  }

  async forget(address = GUEST): Promise<void> {
    await this.#ask({ type: 'forget', address });
  }

  /** Sets the closed addresses of the host, in addition to those of the guests. */
  async setHostAddresses(...addresses: string[]): Promise<void> {
    const answer = await this.#ask({ type: 'closed', closed: closedWith(...addresses) });
    assert.equal(answer.type, 'done');
  }

  async counters(address = GUEST): Promise<JudgedCounters | null> {
    const answer = await this.#ask({ type: 'counters', address });
    return answer.type === 'counters' ? answer.counters : null;
  }

  hear(message: Parameters<EgressService['hear']>[0]): void {
    this.#service?.hear(message);
  }

  /** Opens a connection as a guest. It is redirected to the proxy. */
  connect(port: number, { from = GUEST, to = SERVER } = {}): Socket {
    const socket = connect({ host: to, port, localAddress: from, noDelay: true, allowHalfOpen: true });
    this.#resources.defer(() => void socket.destroy());
    return socket;
  }

  /** Starts a server of the internet and returns its port. */
  async serve(onConnection: (socket: Socket) => void, address = SERVER, port = 0): Promise<number> {
    const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => socket.destroy());
      this.#resources.defer(() => void socket.destroy());
      onConnection(socket);
    });
    server.listen(port, address);
    await once(server, 'listening');
    this.#resources.defer(() => void server.close());
    return (server.address() as AddressInfo).port;
  }

  /** Waits for `count` noted refusals and returns the `data` of all of them. */
  async blocked(count = 1): Promise<object[]> {
    const list = () =>
      this.notes.flatMap(({ note }) => (note.event === 'network.blocked' ? [note.data] : []));
    const step = 'notes of refusals';
    return pollUntil({ step, timeoutMs: TIMEOUT_MS, intervalMs: 5 }, () =>
      list().length >= count ? list() : undefined,
    );
  }

  async untilClosed(): Promise<void> {
    const step = 'end of the connections';
    await pollUntil({ step, timeoutMs: TIMEOUT_MS, intervalMs: 5 }, async () =>
      (await this.counters())?.connections_open === 0 ? true : undefined,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#resources.disposeAsync();
  }

  async #openService(maxFlows: number): Promise<void> {
    const closed = closedWith();
    const { destinations } = this.#resources.use(startDestinations());
    const service = await openEgressService({
      start: { type: 'start', resolver: RESOLVER, resolvers: [NAME_SERVER], closed },
      send: (message) => this.#hearBack(message),
      openCredentials: async ({ address }) => {
        const server = createServer((socket) => socket.destroy()).listen(0, address);
        await once(server, 'listening');
        const close = async () => void server.close();
        return { port: (server.address() as AddressInfo).port, [Symbol.asyncDispose]: close };
      },
      maxFlows,
      destinations,
      log: pino({ level: process.env['COPPICE_TEST_LOG'] ?? 'silent' }),
    });
    this.#service = this.#resources.use(service);
    const input = buildRedirect(service.ports);
    execFileSync('nft', ['-f', '-'], { input });
  }

  #hearBack(message: EgressMessage): void {
    if (message.type === 'ready') return;
    if (message.type !== 'notes') return this.#answers.get(message.id)?.(message);
    this.notes.push(...message.notes);
    if (!this.acknowledges) this.unacknowledged.push(message.id);
    else setImmediate(() => this.hear({ type: 'noted', id: message.id }));
  }

  async #ask(question: Ask): Promise<Exclude<EgressMessage, { type: 'ready' }>> {
    this.#lastId += 1;
    const answer = Promise.withResolvers<Exclude<EgressMessage, { type: 'ready' }>>();
    this.#answers.set(this.#lastId, (message) => {
      if (message.type !== 'ready') answer.resolve(message);
    });
    this.hear({ ...question, id: this.#lastId });
    return answer.promise;
  }
}

function closedWith(...addresses: string[]): EgressStart['closed'] {
  return { openPrivateRanges: [], own: [GUESTS, ...addresses] };
}

function buildRedirect({ proxy, dnsUdp, dnsTcp }: EgressService['ports']): string {
  const guest = `ip saddr ${GUESTS}`;
  return `table ip site {
  chain zone {
    type filter hook output priority raw;
    ${guest} ip daddr != ${GUESTS} ct original zone set 7
  }
  chain lead {
    type nat hook output priority -110;
    ${guest} ip daddr ${RESOLVER} udp dport 53 dnat to ${RESOLVER}:${dnsUdp}
    ${guest} ip daddr ${RESOLVER} tcp dport 53 dnat to ${RESOLVER}:${dnsTcp}
    ${guest} ip daddr != ${RESOLVER} tcp dport 1-65535 dnat to ${RESOLVER}:${proxy}
  }
}
`;
}
