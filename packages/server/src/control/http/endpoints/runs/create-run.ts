import { CreateSandboxRequest, SandboxRecord } from '@coppice/contract';
import { newSandboxId } from '../../../sandbox/record/ids.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { createOnce, IdempotencyHeaders } from '../../access/idempotent.ts';
import type { HttpParts } from '../../parts.ts';
import { readRequestedEgress } from '../../requests/requested-egress.ts';
import { createFor } from '../../serving/in-process-fetch.ts';

export function addCreateRun(
  app: App,
  parts: Pick<
    HttpParts,
    'sandboxes' | 'idempotency' | 'openRequests' | 'runners' | 'rules' | 'secretDigest' | 'secretValues'
  >,
): void {
  const { sandboxes } = parts;
  app.route({
    method: 'POST',
    url: '/v1/runs',
    config: { access: 'full' },
    schema: {
      operationId: 'createSandbox',
      summary: 'Create a sandbox; answers when a first command can run',
      headers: IdempotencyHeaders,
      body: CreateSandboxRequest,
      response: answers(201, SandboxRecord, [400, 401, 402, 404, 409, 413, 422, 429, 502, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, teamId, reach, body } = request;
      const owner = { organizationId, teamId };
      const answer = await createOnce(parts, request, reply, {
        body: parts.secretDigest.hide(body),
        newSubjectId: newSandboxId,
        create: (id) =>
          createFor(request, [id], async () => {
            const egress = await readRequestedEgress(organizationId, body, parts);
            return { status: 201, body: await sandboxes.create({ owner, reach, id, request: body, egress }) };
          }),
        find: (id) => sandboxes.findSubject(reach, id),
      });
      return reply.code(201).header('location', `/v1/runs/${answer.body.id}`).send(answer.body);
    },
  });
}
