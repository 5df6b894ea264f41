/**
 * Carries a request to the control that owns the runner of its sandbox, and the answer back, both as they arrive:
 *
 *   client ─► this control: authenticated, counted; its sandbox is elsewhere ─► owner: answers as it does its own clients
 *
 * A control that owns nothing any more has a successor within its lease: the request waits for it, and is refused with
 * `unavailable` after a while.
 */
import { Agent, request as sendRequest } from 'node:https';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Owner } from '../../ownership/owners.ts';
import { parseAddress } from '../../../lib/protocol/join-protocol.ts';
import { invariant } from '../../../lib/invariant.ts';
import { passAnswer, passUpgrade, type Asked } from '../../ports/pass-answer.ts';
import { toExchange } from '../access/proxied-route.ts';
import { bodyTextOf } from '../requests/json-body.ts';
import { CLIENT_ADDRESS } from '../requests/forwarded-request.ts';

const OWNER_PATIENCE_MS = 20_000;
const LOOK_EVERY_MS = 250;
const CONNECT_DEADLINE_MS = 5_000;
/** Shorter than the other control keeps a connection that is not used. */
const AGENT_IDLE_MS = 30_000;
const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'transfer-encoding', 'expect', 'x-request-id']);
const LIMITS = ['ratelimit', 'ratelimit-policy'];
const OWN_HEADER = /^coppice-/iu;

export interface RequestForwarderParts {
  /** Finds the control that answers for a runner. */
  findOwner: (runnerId: string) => Promise<Owner | undefined>;
  /** Options of TLS that prove this control, and accept only that one. */
  tlsTo: (owner: Owner) => object;
  log: Logger;
}

export class RequestForwarder implements Disposable {
  readonly #parts: RequestForwarderParts;
  readonly #agent = new Agent({ keepAlive: true, timeout: AGENT_IDLE_MS });

  constructor(parts: RequestForwarderParts) {
    this.#parts = parts;
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }

  /** Rejects, with an AppError, only if nothing has been sent to the client. Call after `reply.hijack()`. */
  async forward(runnerId: string, request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { raw } = request;
    const text = bodyTextOf(raw);
    if (text === undefined && raw.readableDidRead)
      throw new AppError('unavailable', 'the runner of the sandbox has another owner now; try again');
    const owner = await this.#findOwner(runnerId, raw.socket);
    const upstream = this.#send(owner, request, text);
    const { raw: response } = reply;
    const left = (): void => {
      if (!response.writableFinished) upstream.destroy();
    };
    response.once('close', left);
    raw.socket.once('close', left);
    try {
      await carry(upstream, { ...toExchange(request, reply), ownOrigin: false, added: readLimits(reply) });
    } catch (error) {
      upstream.destroy();
      if (!response.headersSent && !response.destroyed) throw unanswered(error, raw.method);
      response.destroy();
      raw.socket.destroy();
    } finally {
      response.off('close', left);
      raw.socket.off('close', left);
    }
  }

  async #findOwner(runnerId: string, client: { destroyed: boolean }): Promise<Owner> {
    const end = performance.now() + OWNER_PATIENCE_MS;
    while (performance.now() < end && !client.destroyed) {
      const owner = await this.#parts.findOwner(runnerId);
      if (owner !== undefined) return owner;
      await delay(LOOK_EVERY_MS);
    }
    throw new AppError('unavailable', 'no control has taken the runner of the sandbox yet; try again');
  }

  #send(owner: Owner, request: FastifyRequest, text: string | undefined): ClientRequest {
    const place = parseAddress(owner.address);
    invariant(place, 'a control publishes its address as host:port');
    const { raw } = request;
    const upstream = sendRequest({
      ...place,
      agent: raw.headers.upgrade === undefined ? this.#agent : false,
      ...this.#parts.tlsTo(owner),
      method: raw.method,
      path: request.originalUrl,
      headers: buildHead(request, text),
      timeout: CONNECT_DEADLINE_MS,
    });
    // The time without bytes is limited only until there is a connection.
    upstream.once('socket', (socket) => {
      const connected = (): void => void upstream.setTimeout(0);
      if (socket.connecting) socket.once('secureConnect', connected);
      else connected();
    });
    upstream.once('timeout', () => upstream.destroy(new Error('the connection was not made in time')));
    if (text !== undefined) upstream.end(text);
    else if (hasBody(raw)) raw.pipe(upstream);
    else upstream.end();
    return upstream;
  }
}

function carry(upstream: ClientRequest, asked: Asked): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  upstream.once('error', reject);
  upstream.once('response', (answer: IncomingMessage) => passAnswer(answer, asked).then(resolve, reject));
  upstream.once('upgrade', (message, socket, head) =>
    passUpgrade(asked, { message, socket, head }).then(resolve, reject),
  );
  return promise;
}

function buildHead(request: FastifyRequest, text: string | undefined): string[] {
  const { raw, id, clientAddress } = request;
  const isUpgrade = raw.headers.upgrade !== undefined;
  const fields = keepFields(raw.rawHeaders, text === undefined ? [] : ['content-length']);
  const framing = text === undefined ? [] : ['content-length', String(Buffer.byteLength(text))];
  const chunked = text === undefined && raw.headers['transfer-encoding'] !== undefined;
  return [
    ...fields,
    ...framing,
    ...(chunked ? ['transfer-encoding', 'chunked'] : []),
    ...(isUpgrade ? ['connection', 'Upgrade'] : []),
    'x-request-id',
    id,
    CLIENT_ADDRESS,
    clientAddress,
  ];
}

/** Only the control that the client has asked counts its requests. */
function readLimits(reply: FastifyReply): string[] {
  return LIMITS.flatMap((name) => {
    const value = reply.getHeader(name);
    return value === undefined ? [] : [name, String(value)];
  });
}

/** Leaves out the fields of one connection, and those that only controls set. */
function keepFields(raw: readonly string[], alsoDropped: readonly string[]): string[] {
  const kept: string[] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = raw[index] ?? '';
    const lower = name.toLowerCase();
    const isDropped = HOP_BY_HOP.has(lower) || OWN_HEADER.test(name) || alsoDropped.includes(lower);
    if (!isDropped) kept.push(name, raw[index + 1] ?? '');
  }
  return kept;
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
}

function unanswered(cause: unknown, method = ''): AppError {
  if (cause instanceof AppError) return cause;
  const what = 'the control that has the sandbox gave no answer';
  if (method === 'GET' || method === 'HEAD')
    return new AppError('unavailable', `${what}; try again`, { cause });
  return new AppError('outcome_unknown', `${what}; whether the request was carried out is not known`, {
    cause,
  });
}
