/** Shared by every POST that creates or discards something: the `Idempotency-Key`, and the limit on open requests. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Idempotency, IdempotentRequest, KeptAnswer } from '../../sandbox/idempotency.ts';
import type { OpenRequests } from './open-requests.ts';

const KEY = /^[\x21-\x7e]{1,255}$/;

export const IdempotencyHeaders = z.looseObject({
  'idempotency-key': z
    .string()
    .regex(KEY, { error: 'must be 1 to 255 visible ASCII characters' })
    .optional()
    .describe('For 24 hours, a repeated request with the same key and body gets the answer of the first.'),
});

type IdempotentCall = Pick<FastifyRequest, 'organizationId' | 'reach' | 'method' | 'originalUrl'> & {
  headers: z.infer<typeof IdempotencyHeaders>;
};

export interface IdempotencyParts {
  idempotency: Idempotency;
  openRequests: OpenRequests;
}

export interface Creation<T> extends Pick<IdempotentRequest<T>, 'newSubjectId' | 'create' | 'find'> {
  /** The content that must be the same under the same key. */
  body: unknown;
}

/** Runs `creation` once for each `Idempotency-Key`. Sets `Idempotency-Replayed`; the endpoint sends the status. */
export async function createOnce<T>(
  { idempotency, openRequests }: IdempotencyParts,
  request: IdempotentCall,
  reply: FastifyReply,
  creation: Creation<T>,
): Promise<KeptAnswer<T>> {
  const { organizationId, reach, headers } = request;
  const { 'idempotency-key': key } = headers;
  const path = request.originalUrl.split('?', 1)[0] ?? '';
  return openRequests.limit(organizationId, async () => {
    if (key === undefined) return creation.create(creation.newSubjectId());
    // A key that is limited to its team must not receive the answer to another team's request.
    const scope = reach.onlyTeamId === null ? '' : ` ${reach.onlyTeamId}`;
    const route = `${request.method} ${path}${scope}`;
    const answer = await idempotency.run({ organizationId, route, key, ...creation });
    if (answer.isReplayed) reply.header('idempotency-replayed', 'true');
    return answer;
  });
}
