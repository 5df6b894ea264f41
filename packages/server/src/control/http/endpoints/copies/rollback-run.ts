import { RollbackRequest, SandboxRecord } from '@coppice/contract';
import { newRollbackId } from '../../../sandbox/record/ids.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { createOnce, IdempotencyHeaders } from '../../access/idempotent.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addRollbackRun(
  app: App,
  parts: Pick<HttpParts, 'sandboxes' | 'snapshots' | 'idempotency' | 'openRequests'>,
): void {
  const { sandboxes, snapshots } = parts;
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/rollback',
    config: { access: 'full' },
    schema: {
      operationId: 'rollBackSandbox',
      summary: 'Roll a sandbox back to a snapshot of it or of an ancestor, in place and under the same id',
      description:
        'All later changes are lost: memory, processes and files are those of the snapshot. If the rollback fails, the sandbox ' +
        'keeps running as it was. After 504 `outcome_unknown` the service finishes the rollback as soon as it can; until then ' +
        'the record shows the operation `rolling_back`. A retry with the same `Idempotency-Key` does not roll back twice.',
      params: SandboxParams,
      headers: IdempotencyHeaders,
      body: RollbackRequest,
      response: answers(200, SandboxRecord, [400, 401, 404, 409, 413, 422, 429, 502, 503, 504]),
    },
    handler: async (request, reply) => {
      const { reach, body } = request;
      const { id } = request.params;
      await sandboxes.get(reach, id);
      const answer = await createOnce(parts, request, reply, {
        body,
        newSubjectId: newRollbackId,
        create: async (rollbackId) => {
          const record = await snapshots.use(reach, body.snapshot_id, (snapshot) =>
            sandboxes.rollBack(reach, id, { rollbackId, snapshot }),
          );
          return { status: 200, body: record };
        },
        find: (rollbackId) => sandboxes.findRollback(reach, id, rollbackId),
      });
      return answer.body;
    },
  });
}
