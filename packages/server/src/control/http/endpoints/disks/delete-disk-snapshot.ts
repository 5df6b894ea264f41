import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { DiskSnapshotParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addDeleteDiskSnapshot(app: App, { diskSnapshots }: Pick<HttpParts, 'diskSnapshots'>): void {
  app.route({
    method: 'DELETE',
    url: '/v1/disks/:disk/snapshots/:diskSnapshot',
    config: { access: 'full' },
    schema: {
      operationId: 'deleteDiskSnapshot',
      summary: 'Delete a snapshot of a persistent disk; disks forked from it are not affected',
      params: DiskSnapshotParams,
      response: answers(204, NOTHING, [401, 404, 503]),
    },
    handler: async ({ reach, params }, reply) => {
      await diskSnapshots.delete(reach, params.disk, params.diskSnapshot);
      return reply.code(204).send(null);
    },
  });
}
