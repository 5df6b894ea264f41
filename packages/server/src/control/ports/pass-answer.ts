/**
 * Passes the answer of a service in a guest to the client. The service may be hostile, and Node's parser accepts more
 * than its writer. So an answer that cannot be written is detected before any of it is written, and the client gets an
 * error.
 */
import { ServerResponse, type IncomingMessage, type InformationEvent, type OutgoingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { formatSwitch, joinSockets } from '../../lib/streams/join-sockets.ts';
import { buildAnswerHead, buildTrailers, buildUpgradeHead, readReason } from './forwarded-headers.ts';

/** The client's side of an exchange. */
export interface Asked {
  request: IncomingMessage;
  response: ServerResponse;
  /** True under the API's origin, with an API key. False under the port's own origin. */
  ownOrigin: boolean;
  /** Fields that the service adds to the answer's head: alternating names and values. */
  added: readonly string[];
  /** Bytes that followed the head of an upgrade request. */
  upgradeHead?: Buffer | undefined;
}

export interface UpgradeAnswer {
  message: IncomingMessage;
  socket: Duplex;
  head: Buffer;
}

/** An answer that cannot be passed on. The client has received nothing of it. */
export class UnusableAnswer extends Error {}

/** Passes on an interim answer. Must not throw, whatever the guest sends: nothing catches errors of event handlers. */
export function passHint({ statusCode, headers }: InformationEvent, response: ServerResponse): void {
  const { link } = headers;
  try {
    if (statusCode === 103 && link !== undefined) response.writeEarlyHints({ link });
    else if (statusCode === 102) response.writeProcessing();
  } catch (error) {
    // Node's writer accepts fewer forms of a link than its parser. The answer then goes without the hint.
    if (!(error instanceof TypeError)) response.destroy(error as Error);
  }
}

/** Passes on an answer. Resolves when all of it is written, or the client has left. */
export async function passAnswer(answer: IncomingMessage, asked: Asked): Promise<void> {
  passHead(answer, asked);
  const { response } = asked;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  response.on('error', resolve);
  answer.pipe(response, { end: false });
  answer.once('end', () => {
    if (addTrailers(response, answer.rawTrailers)) response.end(resolve);
  });
  answer.once('error', reject);
  answer.once('close', () => {
    if (!answer.complete) reject(new Error('the service ended the connection in the middle of its answer'));
  });
  response.once('close', resolve);
  await promise;
}

/**
 * Writes the head. A head that fails leaves marks in its response, such as that a 304 has no body, and then no error
 * can be answered any more. So each head is first written to a response without a connection.
 */
function passHead(answer: IncomingMessage, { response, ownOrigin, added }: Asked): void {
  const { statusCode = 0 } = answer;
  if (statusCode < 200) throw new UnusableAnswer(`${statusCode} is no status that ends an exchange`);
  const phrase = readReason(answer);
  const mayTrail = mayHaveTrailers(answer, response);
  const head = [...buildAnswerHead(answer, { ownOrigin, mayHaveTrailers: mayTrail }), ...added];
  orUnusable(() => new ServerResponse(response.req).writeHead(statusCode, phrase, head));
  // The date comes from the guest's clock, or is absent.
  response.sendDate = false;
  response.writeHead(statusCode, phrase, head);
  flushHead(response);
}

function orUnusable<T>(write: () => T): T {
  try {
    return write();
  } catch (cause) {
    throw new UnusableAnswer('an answer that cannot be passed on', { cause });
  }
}

/** Returns whether trailers are possible. If not, Node refuses a head that announces them. */
function mayHaveTrailers({ headers, statusCode = 0 }: IncomingMessage, { req }: ServerResponse): boolean {
  const hasBody = req.method !== 'HEAD' && statusCode !== 204 && statusCode !== 304;
  return hasBody && headers['transfer-encoding'] !== undefined && req.httpVersionMinor > 0;
}

/** Sends the head. `flushHeaders` would write it as UTF-8: each byte above 127 in a field's value would become two. */
export function flushHead(message: OutgoingMessage): void {
  message.write('', 'latin1');
}

/** Adds trailers. If Node refuses them, destroys the message and returns false. */
export function addTrailers(message: OutgoingMessage, rawTrailers: readonly string[]): boolean {
  try {
    if (rawTrailers.length > 0) message.addTrailers(buildTrailers(rawTrailers));
    return true;
  } catch (error) {
    message.destroy(error as Error);
    return false;
  }
}

/** Passes on an upgrade. Resolves when both sides are closed. */
export async function passUpgrade(
  { request, upgradeHead }: Asked,
  { message, socket, head }: UpgradeAnswer,
): Promise<void> {
  const client = request.socket;
  try {
    if (upgradeHead === undefined) throw new UnusableAnswer('an upgrade that the client did not request');
    const switchHead = orUnusable(() => formatSwitch(buildUpgradeHead(message)));
    client.setTimeout(0);
    client.setNoDelay(true);
    client.write(switchHead, 'latin1');
  } catch (error) {
    socket.destroy();
    throw error;
  }
  await joinSockets({ socket: client, head: upgradeHead }, { socket, head });
}
