/**
 * Carries one request of a client to a service in a guest, and the answer back, both as they arrive: only the windows
 * of the streams buffer. When one side leaves, the other side is ended, by a reset if something is cut off.
 *
 *   client ──request──► head rewritten ──► connection to the port ──► service
 *          ◄─ 1xx, answer, trailers; or 101 and then bytes both ways ◄──
 */
import { request as sendRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import { AppError } from '@coppice/contract';
import { buildRequestHead } from './forwarded-headers.ts';
import {
  addTrailers,
  flushHead,
  passAnswer,
  passHint,
  passUpgrade,
  UnusableAnswer,
  type Asked,
  type UpgradeAnswer,
} from './pass-answer.ts';
import { PortAgent, toRequestTarget, type GuestPort, type RunnerOf } from './port-agent.ts';

/** Limit of an answer's head. A guest may send larger heads than the API accepts. */
const MAX_HEAD_BYTES = 64 << 10;
/** Limit of interim answers that are passed on: they have no back-pressure, and a guest could send them forever. */
const MAX_HINTS = 16;
const CLIENT_PROBE_MS = 30_000;
/** Without a body, requests of these methods can be sent again, so a kept connection may be tried for them. */
const REPEATABLE = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PROPFIND', 'REPORT', 'SEARCH']);

export interface Exchange extends Asked {
  target: GuestPort;
  /** Path and query as the guest gets them, byte for byte. */
  path: string;
  clientAddress: string;
  /** Aborted to cut off exchanges without an end of their own: upgrades and event streams. */
  over: AbortSignal;
}

export class PortForwarder implements Disposable {
  readonly #kept: PortAgent;
  readonly #fresh: PortAgent;

  constructor(runnerOf: RunnerOf) {
    this.#kept = new PortAgent(runnerOf);
    this.#fresh = PortAgent.withoutReuse(runnerOf);
  }

  [Symbol.dispose](): void {
    this.#kept.destroy();
    this.#fresh.destroy();
  }

  /** Resolves when the exchange is over. Rejects, with an AppError, only if nothing has been sent to the client. */
  async forward(exchange: Exchange): Promise<void> {
    exchange.request.socket.setKeepAlive(true, CLIENT_PROBE_MS);
    const { request, upgradeHead } = exchange;
    const isRepeatable =
      REPEATABLE.has(request.method ?? '') && !hasBody(request) && upgradeHead === undefined;
    if (isRepeatable && (await this.#attempt(exchange, this.#kept)) === 'done') return;
    await this.#attempt(exchange, this.#fresh);
  }

  /** Returns `stale` if the service had closed a kept connection: no answer came, and the request can be sent again. */
  async #attempt(exchange: Exchange, agent: PortAgent): Promise<'done' | 'stale'> {
    const { response } = exchange;
    const upstream = send(exchange, agent);
    const left = (): void => {
      if (!response.writableFinished) upstream.destroy();
    };
    response.once('close', left);
    using waiting = watchUpgrading(exchange, left);
    const endless = new AbortController();
    try {
      sendBody(exchange.request, upstream);
      await carryAnswer(upstream, exchange, (answer) => {
        waiting.dispose();
        if (isEndless(answer)) cutOff(exchange, endless.signal);
      });
      return 'done';
    } catch (error) {
      upstream.destroy();
      if (response.headersSent || response.destroyed) {
        response.destroy();
        return 'done';
      }
      if (upstream.reusedSocket && !(error instanceof UnusableAnswer)) return 'stale';
      throw explain(error, exchange.target.port);
    } finally {
      endless.abort();
      response.off('close', left);
    }
  }
}

function send(
  { target, request, path, clientAddress, ownOrigin }: Exchange,
  agent: PortAgent,
): ClientRequest {
  return sendRequest({
    ...toRequestTarget(target),
    agent,
    method: request.method,
    path,
    headers: buildRequestHead({ request, port: target.port, clientAddress, isAuthorizationOurs: ownOrigin }),
    maxHeaderSize: MAX_HEAD_BYTES,
    joinDuplicateHeaders: false,
  });
}

/**
 * Calls `left` if the client leaves before its upgrade is answered. Node has handed over the connection by then, and no
 * longer closes the response with it.
 */
function watchUpgrading({ request, response, upgradeHead }: Exchange, left: () => void): DisposableStack {
  const watch = new DisposableStack();
  if (upgradeHead === undefined) return watch;
  const { socket } = request;
  const leave = (): void => {
    response.destroy();
    left();
  };
  for (const event of ['end', 'close']) {
    socket.once(event, leave);
    watch.defer(() => socket.off(event, leave));
  }
  return watch;
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
}

function sendBody(request: IncomingMessage, upstream: ClientRequest): void {
  if (!hasBody(request)) {
    upstream.end();
    return;
  }
  flushHead(upstream);
  request.pipe(upstream, { end: false });
  request.once('end', () => {
    if (addTrailers(upstream, request.rawTrailers)) upstream.end();
  });
  upstream.once('close', () => {
    request.unpipe(upstream);
    request.resume();
  });
}

type Answer = { message: IncomingMessage } | UpgradeAnswer;

/** Listens to all events from the start: otherwise the end of an answer that breaks at once could be missed. */
function carryAnswer(
  upstream: ClientRequest,
  exchange: Exchange,
  onAnswer: (answer: Answer) => void,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let hints = 0;
  let isAnswered = false;
  const carry = (answer: Answer): void => {
    isAnswered = true;
    onAnswer(answer);
    const carried = 'socket' in answer ? passUpgrade(exchange, answer) : passAnswer(answer.message, exchange);
    carried.then(resolve, reject);
  };
  upstream.on('information', (information) => {
    hints += 1;
    if (hints <= MAX_HINTS) passHint(information, exchange.response);
  });
  upstream.once('response', (message: IncomingMessage) => carry({ message }));
  upstream.once('upgrade', (message, socket, head) => carry({ message, socket, head }));
  upstream.on('error', reject);
  upstream.once('close', () => {
    if (!isAnswered) reject(new Error('the client left'));
  });
  return promise;
}

function isEndless(answer: Answer): boolean {
  return 'socket' in answer || /^text\/event-stream/iu.test(answer.message.headers['content-type'] ?? '');
}

/** Cuts the exchange off when `over` is aborted, unless it has ended before. */
function cutOff({ request, over }: Exchange, ended: AbortSignal): void {
  const cut = (): void => void request.socket.destroy();
  if (over.aborted) cut();
  else over.addEventListener('abort', cut, { once: true, signal: ended });
}

function explain(error: unknown, port: number): AppError {
  if (error instanceof AppError) return error;
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  const isBroken = error instanceof UnusableAnswer || (typeof code === 'string' && code.startsWith('HPE_'));
  const what = isBroken ? 'did not answer with valid HTTP' : 'ended the connection before it answered';
  return new AppError('port_unreachable', `the service on port ${port} in the sandbox ${what}`, {
    cause: error,
  });
}
