import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { DiskParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addDeleteDisk(app: App, { disks }: Pick<HttpParts, 'disks'>): void {
  app.route({
    method: 'DELETE',
    url: '/v1/disks/:disk',
    config: { access: 'full' },
    schema: {
      operationId: 'deleteDisk',
      summary: 'Delete a persistent disk with its data and its snapshots',
      description:
        'Refused while a sandbox has the disk, and while disks that were forked from it exist. A hibernated sandbox that had ' +
        'it cannot resume afterwards.',
      params: DiskParams,
      response: answers(204, NOTHING, [401, 404, 409, 503]),
    },
    handler: async ({ reach, params }, reply) => {
      await disks.delete(reach, params.disk);
      return reply.code(204).send(null);
    },
  });
}
