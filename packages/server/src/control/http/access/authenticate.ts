/** Authenticates requests by an API key, a ticket, or a link to a file. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Credential } from '../../auth/authenticator.ts';
import type { FileLinks } from '../../auth/file-links.ts';
import { endWithKey } from './end-with-key.ts';
import type { HttpParts } from '../parts.ts';
import { isForwarded } from '../requests/forwarded-request.ts';

export type AuthenticationParts = Pick<
  HttpParts,
  'authenticate' | 'keyGuesses' | 'keyEnds' | 'keyUses' | 'fileLinks'
>;

/** Puts the caller's key on the request. Throws `unauthorized`, or `rate_limited` after too many wrong keys. */
export async function authenticate(
  request: FastifyRequest,
  reply: FastifyReply,
  { authenticate: findPrincipal, keyGuesses, keyEnds, keyUses, fileLinks }: AuthenticationParts,
): Promise<void> {
  const credential = readCredential(request, fileLinks);
  const principal = await keyGuesses.check(request.clientAddress, credential, () =>
    findPrincipal(credential),
  );
  request.organizationId = principal.organizationId;
  request.teamId = principal.teamId;
  request.apiKeyId = principal.apiKeyId;
  request.keyScope = principal.scope;
  request.reach = principal.reach;
  request.userId = principal.userId ?? '';
  keyUses.note(principal.apiKeyId);
  endWithKey(request, reply, { keyEnds, apiKeyId: principal.apiKeyId, reach: principal.reach });
}

function readCredential(
  { raw, headers, params, query, routeOptions }: FastifyRequest,
  fileLinks: FileLinks,
): Credential {
  if (routeOptions.config.isFileLink === true) {
    const link = String((params as { token?: unknown }).token);
    return { link, isSigned: fileLinks.isSigned(link) };
  }
  const { authorization } = headers;
  const { credentialInQuery } = routeOptions.config;
  if (authorization !== undefined || credentialInQuery === undefined) return { authorization };
  const { ticket, token } = query as { ticket?: unknown; token?: unknown };
  const { id } = params as { id?: unknown };
  if (typeof ticket === 'string') return { ticket, sandboxId: String(id), isRedeemed: isForwarded(raw) };
  const isKeyAllowed = credentialInQuery === 'ticket or key' && typeof token === 'string';
  return { authorization: isKeyAllowed ? `Bearer ${token}` : undefined };
}
