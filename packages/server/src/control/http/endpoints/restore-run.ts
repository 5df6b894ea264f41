import { RestoreSandboxRequest, SandboxRecord } from '@coppice/contract';
import { newSandboxId } from '../../sandbox/ids.ts';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import { createOnce, IdempotencyHeaders } from '../idempotent.ts';
import { refuseNetworkRules } from '../network-fields.ts';
import type { HttpParts } from '../parts.ts';

export function addRestoreRun(
  app: App,
  parts: Pick<HttpParts, 'sandboxes' | 'snapshots' | 'idempotency' | 'openRequests' | 'runner'>,
): void {
  const { sandboxes, snapshots, runner } = parts;
  app.route({
    method: 'POST',
    url: '/v1/runs/restore',
    schema: {
      operationId: 'restoreSandbox',
      summary: 'Create a sandbox from a snapshot; answers when a first command could run',
      headers: IdempotencyHeaders,
      body: RestoreSandboxRequest,
      response: answers(201, SandboxRecord, [400, 401, 404, 409, 413, 422, 429, 502, 503]),
    },
    preValidation: (request) => refuseNetworkRules(request, runner),
    handler: async (request, reply) => {
      const { organizationId, body } = request;
      const answer = await createOnce(parts, request, reply, {
        body,
        newSubjectId: newSandboxId,
        create: async (id) => {
          const snapshot = await snapshots.get(organizationId, body.snapshot_id);
          return { status: 201, body: await sandboxes.restore({ id, snapshot, request: body }) };
        },
        find: (id) => sandboxes.findSubject(organizationId, id),
      });
      return reply.code(201).header('location', `/v1/runs/${answer.body.id}`).send(answer.body);
    },
  });
}
