import { CreateSandboxRequest, SandboxRecord } from '@coppice/contract';
import { newSandboxId } from '../../sandbox/ids.ts';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import { createOnce, IdempotencyHeaders } from '../idempotent.ts';
import { refuseNetworkRules } from '../network-fields.ts';
import type { HttpParts } from '../parts.ts';

export function addCreateRun(
  app: App,
  parts: Pick<HttpParts, 'sandboxes' | 'idempotency' | 'openRequests' | 'runner'>,
): void {
  const { sandboxes, runner } = parts;
  app.route({
    method: 'POST',
    url: '/v1/runs',
    schema: {
      operationId: 'createSandbox',
      summary: 'Create a sandbox; answers when a first command can run',
      headers: IdempotencyHeaders,
      body: CreateSandboxRequest,
      response: answers(201, SandboxRecord, [400, 401, 404, 409, 413, 422, 429, 502, 503]),
    },
    preValidation: (request) => refuseNetworkRules(request, runner),
    handler: async (request, reply) => {
      const { organizationId, body } = request;
      const answer = await createOnce(parts, request, reply, {
        body,
        newSubjectId: newSandboxId,
        create: async (id) => ({
          status: 201,
          body: await sandboxes.create({ organizationId, id, request: body }),
        }),
        find: (id) => sandboxes.findSubject(organizationId, id),
      });
      return reply.code(201).header('location', `/v1/runs/${answer.body.id}`).send(answer.body);
    },
  });
}
