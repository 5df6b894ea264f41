import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
import { selectAnswerHeaders, selectTrailers } from './answer-headers.ts';
import { ProxyFault } from '../request/proxy-fault.ts';
import type { SecretTraces } from '../request/secret-traces.ts';

export interface AnswerOptions {
  message: IncomingMessage;
  response: ServerResponse;
  traces: SecretTraces;
  /** Called when bytes pass. */
  onMove: () => void;
}

/**
 * Sends an answer to the guest as it arrives. Resolves when all of it is sent; rejects when one of the sides closes.
 */
export async function sendAnswer({ message, response, traces, onMove }: AnswerOptions): Promise<void> {
  const { statusCode = 0, rawHeaders } = message;
  // The guest gets the date of the service, or none.
  response.sendDate = false;
  // The service's own reason phrase could contain the secret.
  const phrase = STATUS_CODES[statusCode] ?? 'Unknown';
  response.writeHead(statusCode, phrase, selectAnswerHeaders({ statusCode, rawHeaders }, traces));
  response.flushHeaders();
  message.on('data', onMove);
  await pass(message, response);
  if (message.rawTrailers.length > 0) response.addTrailers(selectTrailers(message.rawTrailers, traces));
  const { promise, resolve } = Promise.withResolvers<void>();
  response.once('finish', resolve).once('close', resolve);
  response.end();
  await promise;
}

/** Pipes the body. `pipeline` is not used because it creates and aborts a signal for each complete answer. */
function pass(message: IncomingMessage, response: ServerResponse): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const leave = (): void => reject(new ProxyFault('ended'));
  const breakOff = (): void => {
    if (!message.readableEnded) reject(new ProxyFault('upstream_failed'));
  };
  message.once('end', () => {
    response.off('close', leave);
    resolve();
  });
  message.once('close', breakOff);
  response.once('close', leave);
  if (message.destroyed) breakOff();
  else if (response.destroyed) leave();
  else message.pipe(response, { end: false });
  return promise;
}
