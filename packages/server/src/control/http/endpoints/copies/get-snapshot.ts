import { SnapshotRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SnapshotParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetSnapshot(app: App, { snapshots }: Pick<HttpParts, 'snapshots'>): void {
  app.route({
    method: 'GET',
    url: '/v1/snapshots/:id',
    config: { access: 'read' },
    schema: {
      operationId: 'getSnapshot',
      summary: 'Get a snapshot',
      params: SnapshotParams,
      response: answers(200, SnapshotRecord, [401, 404, 503]),
    },
    handler: ({ reach, params }) => snapshots.get(reach, params.id),
  });
}
