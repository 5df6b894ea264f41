import type { FastifyReply, FastifyRequest } from 'fastify';
import { readCookie } from '../../requests/read-cookie.ts';

export const SESSION_COOKIE = 'coppice_session';
const FORM = /^[A-Za-z0-9_-]{43}$/u;

/** Returns the token of the request, or undefined when it has none of the right form. */
export function readSessionToken({ headers }: FastifyRequest): string | undefined {
  const token = readCookie(headers.cookie, SESSION_COOKIE);
  return token !== undefined && FORM.test(token) ? token : undefined;
}

export function setSessionCookie(
  reply: FastifyReply,
  { token, expiresAt }: { token: string; expiresAt: number },
): void {
  const maxAgeS = Math.max(0, Math.floor((expiresAt - Date.now()) / 1000));
  reply.header('set-cookie', buildCookie(reply.request, token, maxAgeS));
}

export function clearSessionCookie(reply: FastifyReply): void {
  reply.header('set-cookie', buildCookie(reply.request, '', 0));
}

/** Browsers send the cookie to `/account` only, so that neither `/v1` nor a service in a sandbox behind it sees it. */
function buildCookie({ ownOrigin }: FastifyRequest, value: string, maxAgeS: number): string {
  const cookie = `${SESSION_COOKIE}=${value}; Path=/account; HttpOnly; SameSite=Strict; Max-Age=${maxAgeS}`;
  return ownOrigin.startsWith('https:') ? `${cookie}; Secure` : cookie;
}
