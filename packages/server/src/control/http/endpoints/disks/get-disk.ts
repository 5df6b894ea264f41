import { DiskRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { DiskParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetDisk(app: App, { disks }: Pick<HttpParts, 'disks'>): void {
  app.route({
    method: 'GET',
    url: '/v1/disks/:disk',
    config: { access: 'read' },
    schema: {
      operationId: 'getDisk',
      summary: 'Get a persistent disk',
      params: DiskParams,
      response: answers(200, DiskRecord, [401, 404, 503]),
    },
    handler: ({ reach, params }) => disks.get(reach, params.disk),
  });
}
