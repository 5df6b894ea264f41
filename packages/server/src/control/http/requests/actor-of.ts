import type { AuditActor } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';

/** Returns who makes the request, as the organization's audit log names them. */
export function actorOf({
  userId,
  apiKeyId,
  clientAddress,
}: Pick<FastifyRequest, 'userId' | 'apiKeyId' | 'clientAddress'>): AuditActor {
  const user: AuditActor = { type: 'user', id: userId, address: clientAddress };
  if (userId !== '') return apiKeyId === '' ? user : { ...user, session_key: apiKeyId };
  if (apiKeyId !== '') return { type: 'api_key', id: apiKeyId, address: clientAddress };
  return { type: 'unknown', id: null, address: clientAddress };
}
