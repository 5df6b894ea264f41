/**
 * The open state of one guest at the credential proxy: its connections, its requests, and the idle connections to
 * services kept for it. It lasts from the guest's first connection to its last. When the guest's rights change, it
 * judges every open request again.
 */
import type { Socket } from 'node:net';
import type { SecureContext } from 'node:tls';
import { judgeResolved } from '@coppice/contract';
import type { Guest, GuestTable } from '../guest-table.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { judgeRequest, type AcceptedRequest } from './request/judge-request.ts';
import { ServiceAgent } from './service/service-agent.ts';
import type { ServiceExchange } from './service/service-exchange.ts';

export interface SessionParts {
  guests: GuestTable;
  upstream: Upstream;
  trust: SecureContext;
  maxConnections: number;
}

/** The session described above. */
export class GuestSession implements Disposable {
  readonly guest: Guest;
  readonly #parts: SessionParts;
  readonly #sockets = new Set<Socket>();
  readonly #exchanges = new Set<ServiceExchange>();
  readonly #agents = new Map<string, ServiceAgent>();
  readonly #takeBack: (() => void)[] = [];
  #isOver = false;

  constructor(guest: Guest, parts: SessionParts) {
    this.guest = guest;
    this.#parts = parts;
    this.#takeBack.push(
      guest.onChange(() => this.#judgeAgain()),
      guest.onForget(() => this[Symbol.dispose]()),
    );
  }

  get isEmpty(): boolean {
    return this.#sockets.size === 0 && this.#exchanges.size === 0;
  }

  get isOver(): boolean {
    return this.#isOver || this.#parts.guests.findByAddress(this.guest.address) !== this.guest;
  }

  /** Registers a connection. Returns false if the guest already has the maximum number of connections. */
  admit(socket: Socket): boolean {
    if (this.#sockets.size >= this.#parts.maxConnections) return false;
    this.#sockets.add(socket);
    return true;
  }

  release(socket: Socket): void {
    this.#sockets.delete(socket);
  }

  open(exchange: ServiceExchange): void {
    this.#exchanges.add(exchange);
  }

  close(exchange: ServiceExchange): void {
    this.#exchanges.delete(exchange);
  }

  agentFor({ name, outbound: { host, port } }: AcceptedRequest): ServiceAgent {
    const key = `${name.service} ${host}:${port}`;
    const known = this.#agents.get(key);
    if (known !== undefined) return known;
    const { upstream, trust } = this.#parts;
    const agent = new ServiceAgent({ guest: this.guest, upstream, trust, host, port });
    this.#agents.set(key, agent);
    return agent;
  }

  /** Ends everything that the guest has open. */
  [Symbol.dispose](): void {
    this.#isOver = true;
    for (const takeBack of this.#takeBack) takeBack();
    this.#retireAgents();
    for (const exchange of this.#exchanges) exchange.cut();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Judges open requests again. A request continues if its secret was replaced, but not if its right was revoked. */
  #judgeAgain(): void {
    this.#retireAgents();
    for (const exchange of this.#exchanges) if (!this.#mayGoOn(exchange)) exchange.cut();
  }

  #mayGoOn({ request, accepted, remoteAddress }: ServiceExchange): boolean {
    const judgement = judgeRequest(request, this.guest);
    // A secret that the runner has not sent again is not revoked.
    if (judgement.kind === 'refused' && judgement.answer.code === 'secret_missing') return true;
    if (judgement.kind !== 'accepted') return false;
    const { host, port, target } = judgement.outbound;
    const { outbound } = accepted;
    if (host !== outbound.host || port !== outbound.port || target !== outbound.target) return false;
    if (remoteAddress === undefined) return true;
    return judgeResolved(this.guest.policy, host, remoteAddress).action === 'allow';
  }

  #retireAgents(): void {
    for (const agent of this.#agents.values()) agent.retire();
    this.#agents.clear();
  }
}
