import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SnapshotParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addDeleteSnapshot(app: App, { snapshots }: Pick<HttpParts, 'snapshots'>): void {
  app.route({
    method: 'DELETE',
    url: '/v1/snapshots/:id',
    config: { access: 'full' },
    schema: {
      operationId: 'deleteSnapshot',
      summary: 'Delete a snapshot; sandboxes restored from it are not affected',
      params: SnapshotParams,
      response: answers(204, NOTHING, [401, 404, 503]),
    },
    handler: async ({ reach, params }, reply) => {
      await snapshots.delete(reach, params.id);
      return reply.code(204).send(null);
    },
  });
}
