/**
 * What one guest has open at the credential proxy: its connections, its requests, and the connections kept for it. It lasts
 * from the guest's first connection to its last, and asks again about every open request when the guest's rights change.
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

  /** False when the guest has as many connections as it may. */
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

  /** All that the guest has open ends now. */
  [Symbol.dispose](): void {
    this.#isOver = true;
    for (const takeBack of this.#takeBack) takeBack();
    this.#retireAgents();
    for (const exchange of this.#exchanges) exchange.cut();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** A request may go on with a secret that has been replaced, but not with a right that was taken back. */
  #judgeAgain(): void {
    this.#retireAgents();
    for (const exchange of this.#exchanges) if (!this.#mayGoOn(exchange)) exchange.cut();
  }

  #mayGoOn({ request, accepted, remoteAddress }: ServiceExchange): boolean {
    const judgement = judgeRequest(request, this.guest);
    // Not told again is not taken back.
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
