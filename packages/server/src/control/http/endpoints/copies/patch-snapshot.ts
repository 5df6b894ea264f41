import { PatchSnapshotRequest, SnapshotRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SnapshotParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addPatchSnapshot(app: App, { snapshots }: Pick<HttpParts, 'snapshots'>): void {
  app.route({
    method: 'PATCH',
    url: '/v1/snapshots/:id',
    config: { access: 'full' },
    schema: {
      operationId: 'changeSnapshot',
      summary: 'Change the name of a snapshot, and when it expires',
      params: SnapshotParams,
      body: PatchSnapshotRequest,
      response: answers(200, SnapshotRecord, [400, 401, 404, 503]),
    },
    handler: ({ reach, params, body }) => snapshots.patch(reach, params.id, body),
  });
}
