import { ForkRequest, ForkResult } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { ForkedChild } from '../../../sandbox/forking.ts';
import { listChildIds, newForkId } from '../../../sandbox/record/ids.ts';
import type { KeptAnswer } from '../../../sandbox/idempotency.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { buildErrorBody, logError, toAppError } from '../../answers/error-mapper.ts';
import { createOnce, IdempotencyHeaders } from '../../access/idempotent.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { createFor } from '../../serving/in-process-fetch.ts';

/** A request without a body makes one child. */
const Body = z.preprocess((body) => body ?? {}, ForkRequest);

export function addForkRun(
  app: App,
  parts: Pick<HttpParts, 'sandboxes' | 'idempotency' | 'openRequests'>,
): void {
  const { sandboxes } = parts;
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/fork',
    config: { access: 'full' },
    schema: {
      operationId: 'forkSandbox',
      summary: 'Copy a running sandbox, with its memory, processes and files, into new sandboxes',
      description:
        'Answers when a first command can run in each child. The status is 201 when all children run, and 207 when only some ' +
        'do; then an error is in the place of each child that does not run. The parent keeps running unchanged.',
      params: SandboxParams,
      headers: IdempotencyHeaders,
      body: Body,
      response: {
        ...answers(201, ForkResult, [400, 401, 402, 404, 409, 413, 422, 429, 502, 503]),
        207: ForkResult,
      },
    },
    handler: async (request, reply) => {
      const { reach, body } = request;
      const { id } = request.params;
      const { count, disks } = body;
      const answer = await createOnce(parts, request, reply, {
        body,
        newSubjectId: newForkId,
        create: (forkId) =>
          createFor(request, listChildIds(forkId, count), async () => {
            const children = await sandboxes.fork({ reach, id, forkId, count, disks });
            return buildAnswer(children, request);
          }),
        find: async (forkId) => {
          const children = await sandboxes.findFork({ reach, id, forkId, count });
          return typeof children === 'string' ? children : buildAnswer(children, request);
        },
      });
      return reply.code(answer.status === 207 ? 207 : 201).send(answer.body);
    },
  });
}

function buildAnswer(children: readonly ForkedChild[], request: FastifyRequest): KeptAnswer<ForkResult> {
  const isWhole = children.every((child) => 'record' in child);
  const body = children.map((child) => {
    if ('record' in child) return child.record;
    const error = toAppError(child.error);
    logError(error, request);
    return buildErrorBody(error, request);
  });
  return { status: isWhole ? 201 : 207, body };
}
