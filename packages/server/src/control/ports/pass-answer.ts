/**
 * What a service in a guest answers, on its way to the client. The service may be hostile, and Node's parser takes more
 * than its writer gives on: whatever cannot be written is found before anything of it is, and answered with an error.
 */
import { ServerResponse, type IncomingMessage, type InformationEvent, type OutgoingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { formatSwitch, joinSockets } from '../../lib/streams/join-sockets.ts';
import { buildAnswerHead, buildTrailers, buildUpgradeHead, readReason } from './forwarded-headers.ts';

/** The side that the answer is for. */
export interface Asked {
  request: IncomingMessage;
  response: ServerResponse;
  /** Under the API's origin, with the API's key; else under an origin of the port's own. */
  ownOrigin: boolean;
  /** Fields of the answer's head that are not the guest's: names and values in turn. */
  added: readonly string[];
  /** What has come behind the head of a request that asks for an upgrade. */
  upgradeHead?: Buffer | undefined;
}

export interface UpgradeAnswer {
  message: IncomingMessage;
  socket: Duplex;
  head: Buffer;
}

/** Nothing of it has been passed on. */
export class UnusableAnswer extends Error {}

/** Handlers of events must not throw whatever the guest has written: nobody would catch it. */
export function passHint({ statusCode, headers }: InformationEvent, response: ServerResponse): void {
  const { link } = headers;
  try {
    if (statusCode === 103 && link !== undefined) response.writeEarlyHints({ link });
    else if (statusCode === 102) response.writeProcessing();
  } catch (error) {
    // Node takes fewer forms of a link than its parser lets through; an answer does without.
    if (!(error instanceof TypeError)) response.destroy(error as Error);
  }
}

/** Resolves when all of it is written, or the client has left. */
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
 * A head that fails leaves marks in its response, such as that a 304 has no body, with which no error could be answered any
 * more. So each is written to a response without a connection first.
 */
function passHead(answer: IncomingMessage, { response, ownOrigin, added }: Asked): void {
  const { statusCode = 0 } = answer;
  if (statusCode < 200) throw new UnusableAnswer(`${statusCode} is no status that ends an exchange`);
  const phrase = readReason(answer);
  const mayTrail = mayHaveTrailers(answer, response);
  const head = [...buildAnswerHead(answer, { ownOrigin, mayHaveTrailers: mayTrail }), ...added];
  orUnusable(() => new ServerResponse(response.req).writeHead(statusCode, phrase, head));
  // The guest's clock, or none.
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

/** Where they cannot be, Node refuses a head that announces them. */
function mayHaveTrailers({ headers, statusCode = 0 }: IncomingMessage, { req }: ServerResponse): boolean {
  const hasBody = req.method !== 'HEAD' && statusCode !== 204 && statusCode !== 304;
  return hasBody && headers['transfer-encoding'] !== undefined && req.httpVersionMinor > 0;
}

/** Not `flushHeaders`, which writes the head as UTF-8: each byte of a field's value above 127 would become two. */
export function flushHead(message: OutgoingMessage): void {
  message.write('', 'latin1');
}

/** False, and the message is broken off, when Node would not write them. */
export function addTrailers(message: OutgoingMessage, rawTrailers: readonly string[]): boolean {
  try {
    if (rawTrailers.length > 0) message.addTrailers(buildTrailers(rawTrailers));
    return true;
  } catch (error) {
    message.destroy(error as Error);
    return false;
  }
}

/** Resolves when both sides are closed. */
export async function passUpgrade(
  { request, upgradeHead }: Asked,
  { message, socket, head }: UpgradeAnswer,
): Promise<void> {
  const client = request.socket;
  try {
    if (upgradeHead === undefined) throw new UnusableAnswer('an upgrade that nobody asked for');
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
