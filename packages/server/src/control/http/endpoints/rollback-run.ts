import { RollbackRequest, SandboxRecord } from '@coppice/contract';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import { SandboxParams } from '../params.ts';
import type { HttpParts } from '../parts.ts';

export function addRollbackRun(
  app: App,
  { sandboxes, snapshots, openRequests }: Pick<HttpParts, 'sandboxes' | 'snapshots' | 'openRequests'>,
): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/rollback',
    config: { access: 'full' },
    schema: {
      operationId: 'rollBackSandbox',
      summary: 'Put a sandbox back to a snapshot of it or of an ancestor, in place and under the same id',
      description:
        'What it did since is lost: memory, processes and files are those of the snapshot. If it fails, the sandbox runs on ' +
        'as it was.',
      params: SandboxParams,
      body: RollbackRequest,
      response: answers(200, SandboxRecord, [400, 401, 404, 409, 413, 429, 502, 503, 504]),
    },
    handler: async ({ organizationId, reach, params, body }) => {
      await sandboxes.get(reach, params.id);
      const snapshot = await snapshots.get(reach, body.snapshot_id);
      return openRequests.limit(organizationId, () => sandboxes.rollback(reach, params.id, snapshot));
    },
  });
}
