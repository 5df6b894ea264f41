/**
 * Carries a request to the control that owns the runner of its sandbox, or has its files, and the answer back, both as they arrive:
 *
 *   client ─► this control: authenticated, counted; its sandbox is elsewhere ─► owner: answers as it does its own clients
 *
 * A control that owns nothing any more has a successor within its lease: the request waits for it, and is refused with
 * `unavailable` after a while. One that a control itself must answer is refused once that one has ended. It is sent again only if
 * none of it has been sent, or if the owner was still taking the runner and none of a body that is passed on as it arrives has been
 * sent.
 */
import { once } from 'node:events';
import { Agent, request as sendRequest } from 'node:https';
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '@coppice/contract';
import { invariant } from '../../../lib/invariant.ts';
import { parseAddress } from '../../../lib/protocol/join-protocol.ts';
import { isControlId } from '../../ownership/control-id.ts';
import type { Owner } from '../../ownership/owners.ts';
import { addTrailers, flushHead, passAnswer, passUpgrade, type Asked } from '../../ports/pass-answer.ts';
import { toExchange } from '../access/proxied-route.ts';
import { TAKING_OVER } from '../requests/forwarded-request.ts';
import { bodyTextOf } from '../requests/json-body.ts';
import { buildForwardedHead, hasBody, readLimits } from './forwarded-head.ts';
import { OwnerLookup, type FindOwner } from './owner-lookup.ts';

const OWNER_PATIENCE_MS = 20_000;
/** Of a sandbox that is moved while a request follows it. Two controls that name each other must not be asked without end. */
const MAX_MOVES_AT_ONCE = 3;
const CONNECT_DEADLINE_MS = 5_000;
/** Shorter than the other control keeps a connection that is not used. */
const AGENT_IDLE_MS = 30_000;
const PROBE_MS = 10_000;
/** Heads of guests have up to 64 KiB. */
const MAX_HEAD_BYTES = 80 << 10;

export interface RequestForwarderParts {
  findOwner: FindOwner;
  /** Options of TLS that prove this control, and accept only that one. */
  tlsTo: (owner: Owner) => object;
}

/** `at`: the runner that the request needs then. */
type Outcome = 'done' | { at: string };

interface Forwarded {
  /** Id of a runner, or of a control. */
  at: string;
  request: FastifyRequest;
  asked: Asked;
  /** The body, if it has been read. */
  text: string | undefined;
  /** Aborts when an exchange without an end of its own must end. */
  over: AbortSignal;
}

export class RequestForwarder implements Disposable {
  /** Of all requests since the start: passed to an owner, or refused here, as none gave an answer. */
  readonly counts = { answered: 0, refused: 0 };
  readonly #parts: RequestForwarderParts;
  readonly #owners: OwnerLookup;
  readonly #agent = new Agent({ keepAlive: true, timeout: AGENT_IDLE_MS });

  constructor(parts: RequestForwarderParts) {
    this.#parts = parts;
    this.#owners = new OwnerLookup(parts.findOwner);
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }

  /** Rejects, with an AppError, only if nothing has been sent to the client. Call after `reply.hijack()`. */
  async forward(at: string, request: FastifyRequest, reply: FastifyReply, over: AbortSignal): Promise<void> {
    try {
      await this.#forward(at, request, reply, over);
      this.counts.answered += 1;
    } catch (error) {
      this.counts.refused += 1;
      throw error;
    }
  }

  async #forward(at: string, request: FastifyRequest, reply: FastifyReply, over: AbortSignal): Promise<void> {
    const { raw } = request;
    const text = bodyTextOf(raw);
    assertWhole(raw, text);
    const asked = { ...toExchange(request, reply), ownOrigin: false, added: readLimits(reply) };
    try {
      await this.#insist({ at, request, asked, text, over });
    } catch (error) {
      // A client that reads the answer only after it has written all gets it.
      raw.resume();
      throw error;
    }
  }

  async #insist(forwarded: Forwarded): Promise<void> {
    const { text } = forwarded;
    const { raw } = forwarded.request;
    let { at } = forwarded;
    let moves = 0;
    const end = performance.now() + OWNER_PATIENCE_MS;
    while (performance.now() < end && !raw.socket.destroyed) {
      const owner = await this.#owners.look(at);
      assertWhole(raw, text);
      // A control that has ended does not come back, and its next process has another id.
      if (owner === undefined && isControlId(at)) break;
      const outcome = owner && (await this.#attempt(owner, { ...forwarded, at }));
      if (outcome === 'done') return;
      // The sandbox has been moved to another runner meanwhile. An older control does not name the runner.
      const isMoved = outcome?.at.startsWith('runner-') === true && outcome.at !== at;
      if (isMoved) at = outcome.at;
      if (!isMoved || (moves += 1) > MAX_MOVES_AT_ONCE) await this.#owners.pause();
    }
    throw new AppError('unavailable', `${describeAbsence(at)}; try again`);
  }

  /** Returns where to try again if nothing has happened: no connection was made, or the owner is still taking the runner. */
  async #attempt(owner: Owner, forwarded: Forwarded): Promise<Outcome> {
    const { at, request, asked } = forwarded;
    const upstream = this.#open(owner, forwarded);
    if (!(await isConnected(upstream))) return { at };
    const { response } = asked;
    const client = request.raw.socket;
    const cut = (): void => {
      if (!response.writableFinished) upstream.destroy();
    };
    const cutClient = (): void => void client.destroy();
    response.once('close', cut);
    client.once('close', cut);
    using watched = this.#owners.watch(at, owner, () => upstream.destroy(new Error('the owner is gone')));
    try {
      const onEndless = (): void => forwarded.over.addEventListener('abort', cutClient);
      const takeBack = sendBody(upstream, forwarded);
      return await carry(upstream, forwarded, { takeBack, onEndless });
    } catch (error) {
      upstream.destroy();
      if (!response.headersSent && !response.destroyed) throw unanswered(error, request.raw.method);
      client.destroy();
      return 'done';
    } finally {
      watched[Symbol.dispose]();
      forwarded.over.removeEventListener('abort', cutClient);
      response.off('close', cut);
      client.off('close', cut);
    }
  }

  #open(owner: Owner, { request, text, asked }: Forwarded): ClientRequest {
    const place = parseAddress(owner.address);
    invariant(place, 'a control publishes its address as host:port');
    const isUpgrade = asked.upgradeHead !== undefined;
    const { raw, originalUrl: path } = request;
    return sendRequest({
      ...place,
      agent: isUpgrade ? false : this.#agent,
      ...this.#parts.tlsTo(owner),
      method: raw.method,
      path,
      headers: buildForwardedHead(request, { text, isUpgrade }),
      maxHeaderSize: MAX_HEAD_BYTES,
    });
  }
}

function describeAbsence(at: string): string {
  return isControlId(at)
    ? 'the control that could answer the request has ended or cannot be reached'
    : `no control has the runner ${at} yet, which the request needs`;
}

/** Waits for the connection, before anything is written. */
async function isConnected(upstream: ClientRequest): Promise<boolean> {
  // Later errors reach the answer.
  upstream.on('error', () => undefined);
  const deadline = AbortSignal.timeout(CONNECT_DEADLINE_MS);
  try {
    const [socket] = (await once(upstream, 'socket', { signal: deadline })) as [Socket];
    if (socket.connecting) await once(socket, 'secureConnect', { signal: deadline });
    socket.setKeepAlive(true, PROBE_MS);
    return !socket.destroyed;
  } catch {
    upstream.destroy();
    return false;
  }
}

/** Sends the head and the body. Returns a function that takes the body back for another attempt, or returns false. */
function sendBody(upstream: ClientRequest, { request: { raw }, text }: Forwarded): () => boolean {
  flushHead(upstream);
  if (text === undefined && hasBody(raw) && !raw.readableEnded) return pipeBody(upstream, raw);
  if (text !== undefined) upstream.end(text);
  else if (addTrailers(upstream, raw.rawTrailers)) upstream.end();
  return () => true;
}

/** Passes a body on as it arrives. It can be taken back until the first byte of it has been read. */
function pipeBody(upstream: ClientRequest, raw: IncomingMessage): () => boolean {
  const finish = (): void => {
    if (addTrailers(upstream, raw.rawTrailers)) upstream.end();
  };
  // The rest of the body is read and dropped: a client that reads the answer only after it has written all gets it.
  const drop = (): void => {
    raw.unpipe(upstream);
    raw.resume();
  };
  raw.pipe(upstream, { end: false });
  raw.once('end', finish);
  upstream.once('close', drop);
  return () => {
    if (raw.readableDidRead) return false;
    raw.unpipe(upstream);
    raw.pause();
    raw.off('end', finish);
    upstream.off('close', drop);
    upstream.destroy();
    return true;
  };
}

/** Throws `unavailable` if some of a body that is passed on as it arrives has been read. */
function assertWhole(raw: IncomingMessage, text: string | undefined): void {
  if (text === undefined && raw.readableDidRead)
    throw new AppError('unavailable', 'the runner that the request needs has another owner now; try again');
}

/** Passes the answer on. `onEndless` is called for one without an end of its own. */
async function carry(
  upstream: ClientRequest,
  { asked }: Pick<Forwarded, 'asked'>,
  { takeBack, onEndless }: { takeBack: () => boolean; onEndless: () => void },
): Promise<Outcome> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let isAnswered = false;
  let outcome: Outcome = 'done';
  // Once there is an answer, only its own end counts: the rest of the body may meet a connection that is closed.
  upstream.on('error', (error) => {
    if (!isAnswered) reject(error);
  });
  upstream.once('close', () => {
    if (!isAnswered) reject(new Error('the connection ended before the answer'));
  });
  upstream.once('response', (answer: IncomingMessage) => {
    isAnswered = true;
    const at = answer.headers[TAKING_OVER];
    // At once, before more of the body arrives.
    if (typeof at === 'string' && takeBack()) {
      answer.resume();
      outcome = { at };
      return resolve();
    }
    if (/^text\/event-stream/iu.test(answer.headers['content-type'] ?? '')) onEndless();
    passAnswer(answer, asked).then(resolve, reject);
    return undefined;
  });
  upstream.once('upgrade', (message, socket, head) => {
    isAnswered = true;
    onEndless();
    passUpgrade(asked, { message, socket, head })
      .finally(() => asked.response.destroy())
      .then(resolve, reject);
  });
  await promise;
  return outcome;
}

function unanswered(cause: unknown, method = ''): AppError {
  if (cause instanceof AppError) return cause;
  const what = 'the control to which the request was forwarded gave no answer';
  if (method === 'GET' || method === 'HEAD')
    return new AppError('unavailable', `${what}; try again`, { cause });
  return new AppError('outcome_unknown', `${what}; whether the request was carried out is not known`, {
    cause,
  });
}
