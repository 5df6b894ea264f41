import { RestoreSandboxRequest, SandboxRecord } from '@coppice/contract';
import { newSandboxId } from '../../../sandbox/record/ids.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { createOnce, IdempotencyHeaders } from '../../access/idempotent.ts';
import type { HttpParts } from '../../parts.ts';
import { readRequestedEgress } from '../../requests/requested-egress.ts';
import { createFor } from '../../serving/in-process-fetch.ts';

export function addRestoreRun(
  app: App,
  parts: Pick<
    HttpParts,
    | 'sandboxes'
    | 'snapshots'
    | 'idempotency'
    | 'openRequests'
    | 'runners'
    | 'rules'
    | 'secretDigest'
    | 'secretValues'
  >,
): void {
  const { sandboxes, snapshots } = parts;
  app.route({
    method: 'POST',
    url: '/v1/runs/restore',
    config: { access: 'full' },
    schema: {
      operationId: 'restoreSandbox',
      summary: 'Create a sandbox from a snapshot; answers when a first command can run',
      headers: IdempotencyHeaders,
      body: RestoreSandboxRequest,
      response: answers(201, SandboxRecord, [400, 401, 402, 404, 409, 413, 422, 429, 502, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, reach, teamId, body } = request;
      const answer = await createOnce(parts, request, reply, {
        body: parts.secretDigest.hide(body),
        newSubjectId: newSandboxId,
        create: (id) =>
          createFor(request, [id], async () => {
            const record = await snapshots.use(reach, body.snapshot_id, async (snapshot) => {
              const egress = await readRequestedEgress(organizationId, body, parts);
              return sandboxes.restore({ id, snapshot, teamId, request: body, egress });
            });
            return { status: 201, body: record };
          }),
        find: (id) => sandboxes.findSubject(reach, id),
      });
      return reply.code(201).header('location', `/v1/runs/${answer.body.id}`).send(answer.body);
    },
  });
}
