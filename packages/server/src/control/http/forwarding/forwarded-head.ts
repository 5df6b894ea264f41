/** Builds the head of a request for the control that owns the runner. */
import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { CLIENT_ADDRESS, OWN_ORIGIN } from '../requests/forwarded-request.ts';

/** Those of one connection, and those that are set anew. */
const NOT_KEPT = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'trailer',
  'expect',
  'upgrade',
  'x-request-id',
]);
const OWN_HEADER = /^coppice-/iu;
const LIMITS = ['ratelimit', 'ratelimit-policy'];

/** `text`: the body, if it has been read. Returns alternating names and values. */
export function buildForwardedHead(
  { raw, id, clientAddress, ownOrigin }: FastifyRequest,
  { text, isUpgrade }: { text: string | undefined; isUpgrade: boolean },
): string[] {
  const { upgrade, trailer } = raw.headers;
  const isChunked = text === undefined && raw.headers['transfer-encoding'] !== undefined;
  return [
    ...keepFields(raw.rawHeaders, text === undefined ? [] : ['content-length']),
    ...(text === undefined ? [] : ['content-length', String(Buffer.byteLength(text))]),
    ...(isChunked ? ['transfer-encoding', 'chunked'] : []),
    ...(isChunked && typeof trailer === 'string' ? ['trailer', trailer] : []),
    ...(isUpgrade && upgrade !== undefined ? ['connection', 'Upgrade', 'upgrade', upgrade] : []),
    'x-request-id',
    id,
    CLIENT_ADDRESS,
    clientAddress,
    OWN_ORIGIN,
    ownOrigin,
  ];
}

/** Returns the fields about the limits of requests: only the control that the client has asked counts them. */
export function readLimits(reply: FastifyReply): string[] {
  return LIMITS.flatMap((name) => {
    const value = reply.getHeader(name);
    return value === undefined ? [] : [name, String(value)];
  });
}

export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
}

function keepFields(raw: readonly string[], alsoDropped: readonly string[]): string[] {
  const kept: string[] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = raw[index] ?? '';
    const lower = name.toLowerCase();
    const isDropped = NOT_KEPT.has(lower) || OWN_HEADER.test(name) || alsoDropped.includes(lower);
    if (!isDropped) kept.push(name, raw[index + 1] ?? '');
  }
  return kept;
}
