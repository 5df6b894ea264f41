/**
 * Forwards one request of a guest to a service with the secret, and the answer back, both as they arrive. If one side
 * closes, the other is closed too. The result is on the host's disk before the guest receives the answer:
 *
 *     guest ──request──► judged ──► connection, TLS ──► service
 *           ◄─ head, body, trailers; or 101 and then bytes both ways ◄── note durable ◄── status
 *
 * Each judged request leaves one note, even if the guest has left before the answer (499).
 */
import {
  request as sendRequest,
  type ClientRequest,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { answerError, toErrorAnswer } from '../request/answer-error.ts';
import { drainRequest } from './drain-request.ts';
import type { FaultLog } from '../fault-log.ts';
import type { GuestSession } from '../guest-session.ts';
import { IdleLimit } from './idle-limit.ts';
import type { AcceptedRequest } from '../request/judge-request.ts';
import { joinWebSocket } from './join-web-socket.ts';
import { buildHeaderList, hasBody } from '../request/outbound-request.ts';
import { ProxyFault, toProxyFault } from '../request/proxy-fault.ts';
import { RequestNote } from '../request/request-note.ts';
import { sendAnswer } from '../answer/send-answer.ts';
import type { ProxyLimits } from '../request/proxy-limits.ts';
import type { ServiceRequestOptions } from './service-agent.ts';

/** Maximum size of the head of an answer. */
const MAX_HEAD_BYTES = 64 << 10;
/**
 * Methods that can be sent again if they have no body. They are retried when a kept connection turns out to be closed.
 */
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

/** A judged request of a guest, and the parts that its exchange needs. */
export interface Arrival {
  session: GuestSession;
  request: IncomingMessage;
  response: ServerResponse;
  accepted: AcceptedRequest;
  /** True if the guest waits for 100 before it sends the body. */
  awaitsContinue: boolean;
  /** Bytes that arrived after the head of a WebSocket request. */
  upgradeHead?: Buffer | undefined;
  limits: ProxyLimits;
  faults: FaultLog;
}

/** The head of an answer. For an upgrade it also has the connection and the bytes that arrived after the head. */
type ServiceAnswer = { message: IncomingMessage; socket?: Duplex; head?: Buffer };

/** The exchange described above. */
export class ServiceExchange {
  readonly #arrival: Arrival;
  readonly #over = new AbortController();
  readonly #idle: IdleLimit;
  readonly #note: RequestNote;
  #isAnswering = false;
  #remoteAddress: string | undefined;

  constructor(arrival: Arrival) {
    this.#arrival = arrival;
    this.#note = new RequestNote(arrival.session.guest, arrival.accepted.name);
    this.#idle = new IdleLimit(arrival.limits.bodyIdleMs, () => this.#over.abort(this.#findIdleFault()));
  }

  get request(): IncomingMessage {
    return this.#arrival.request;
  }

  get accepted(): AcceptedRequest {
    return this.#arrival.accepted;
  }

  /** Address of the service. undefined until it is connected. */
  get remoteAddress(): string | undefined {
    return this.#remoteAddress;
  }

  /** Ends the exchange on both sides in any state. */
  cut(): void {
    this.#over.abort(new ProxyFault('ended'));
    this.#arrival.response.destroy();
    this.request.socket.destroy();
  }

  /** Runs the exchange to its end. It never rejects. */
  async run(): Promise<void> {
    const { session, request, response } = this.#arrival;
    const left = (): void => {
      if (!response.writableFinished) this.#over.abort(new ProxyFault('ended'));
    };
    response.once('close', left);
    const onMove = (): void => this.#idle.refresh();
    request.on('data', onMove).pause();
    session.open(this);
    try {
      await this.#forward();
    } catch (error) {
      await this.#settle(this.#over.signal.aborted ? this.#over.signal.reason : error);
    } finally {
      session.close(this);
      this.#idle[Symbol.dispose]();
      response.off('close', left);
      request.off('data', onMove);
    }
  }

  async #forward(): Promise<void> {
    const first = this.#send();
    try {
      await this.#carry(first);
    } catch (error) {
      const isStale = first.reusedSocket && !this.#isAnswering && !this.#over.signal.aborted;
      if (!isStale || !REPEATABLE.has(this.accepted.name.method) || hasBody(this.accepted.outbound))
        throw error;
      // If one kept connection was closed, others may be closed too.
      this.#arrival.session.agentFor(this.accepted).dropIdle();
      await this.#carry(this.#send());
    }
  }

  #send(): ClientRequest {
    const { session, accepted } = this.#arrival;
    const { outbound } = accepted;
    const agent = session.agentFor(accepted);
    const options: ServiceRequestOptions = {
      agent,
      host: outbound.host,
      port: outbound.port,
      method: outbound.method,
      path: outbound.target,
      headers: buildHeaderList(outbound),
      maxHeaderSize: MAX_HEAD_BYTES,
      insecureHTTPParser: false,
      signal: this.#over.signal,
      dialSignal: this.#over.signal,
    };
    const upstream = sendRequest(options);
    upstream.once('socket', (socket) => (this.#remoteAddress = agent.addressOf(socket)));
    return upstream;
  }

  /**
   * Sends the request and handles the answer. It listens to all events at once: the answer may break during its note.
   */
  async #carry(upstream: ClientRequest): Promise<void> {
    const answer = Promise.withResolvers<ServiceAnswer>();
    upstream.once('response', (message: IncomingMessage) => {
      message.on('error', ignore);
      answer.resolve({ message });
    });
    upstream.once('upgrade', (message: IncomingMessage, socket: Duplex, head: Buffer) => {
      socket.on('error', ignore);
      answer.resolve({ message, socket, head });
    });
    upstream.on('error', answer.reject);
    upstream.once('close', () => {
      if (!this.#isAnswering) answer.reject(new ProxyFault('upstream_failed'));
    });
    this.#sendBody(upstream);
    try {
      await this.#answer(await answer.promise);
      // The service answered before it received the whole body.
      if (!upstream.writableFinished) upstream.destroy();
      drainRequest(this.request);
    } catch (error) {
      upstream.destroy();
      throw error;
    }
  }

  /** Sends the body. The guest gets 100 Continue once the service is connected and can receive the body. */
  #sendBody(upstream: ClientRequest): void {
    const { request, response, awaitsContinue, limits } = this.#arrival;
    upstream.once('socket', () => {
      if (awaitsContinue && !response.headersSent && !response.destroyed) response.writeContinue();
      this.#idle.refresh();
    });
    upstream.once('finish', () => this.#idle.change(limits.answerIdleMs));
    if (!hasBody(this.accepted.outbound)) {
      upstream.end();
      request.resume();
      return;
    }
    upstream.flushHeaders();
    request.pipe(upstream);
    upstream.once('close', () => {
      request.unpipe(upstream);
      request.resume();
    });
  }

  async #answer(answer: ServiceAnswer): Promise<void> {
    const { session, response, accepted, upgradeHead, limits } = this.#arrival;
    const { message, socket, head } = answer;
    this.#isAnswering = true;
    if (socket !== undefined && upgradeHead === undefined) {
      socket.destroy();
      throw new ProxyFault('upstream_malformed');
    }
    session.guest.count('requests_proxied');
    await this.#note.make(message.statusCode ?? 0);
    this.#over.signal.throwIfAborted();
    const onMove = (): void => this.#idle.refresh();
    if (socket === undefined) {
      await sendAnswer({ message, response, traces: accepted.traces, onMove });
      return;
    }
    this.#idle.change(limits.webSocketIdleMs);
    await joinWebSocket({
      guest: { socket: this.request.socket, head: upgradeHead ?? Buffer.alloc(0) },
      service: { socket, head: head ?? Buffer.alloc(0) },
      message,
      response,
      traces: accepted.traces,
      onMove,
      signal: this.#over.signal,
    });
  }

  async #settle(error: unknown): Promise<void> {
    const fault = await this.#note.makeOf(toProxyFault(error));
    const { session, response, faults } = this.#arrival;
    faults.tell(session.guest.vmId, this.accepted.name.service, fault);
    if (fault.code === 'ended' || response.headersSent || response.destroyed) {
      this.cut();
      return;
    }
    answerError(response, toErrorAnswer(fault));
    drainRequest(this.request);
  }

  #findIdleFault(): ProxyFault {
    const { response } = this.#arrival;
    if (this.#note.isMade || response.headersSent) return new ProxyFault('ended');
    return new ProxyFault(this.request.complete ? 'upstream_timeout' : 'body_timeout');
  }
}

/** Ignores errors of a stream that is destroyed later. */
function ignore(): void {}
