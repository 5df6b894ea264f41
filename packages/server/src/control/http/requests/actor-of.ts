import type { AuditActor } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';

/** Returns who makes the request, as the organization's audit log names them. */
export function actorOf({
  userId,
  apiKeyId,
  clientAddress,
}: Pick<FastifyRequest, 'userId' | 'apiKeyId' | 'clientAddress'>): AuditActor {
  if (userId !== '') return { type: 'user', id: userId, address: clientAddress };
  if (apiKeyId !== '') return { type: 'api_key', id: apiKeyId, address: clientAddress };
  return { type: 'unknown', id: null, address: clientAddress };
}
