import { DiskRecord, PatchDiskRequest } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { DiskParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addPatchDisk(app: App, { disks }: Pick<HttpParts, 'disks'>): void {
  app.route({
    method: 'PATCH',
    url: '/v1/disks/:disk',
    config: { access: 'full' },
    schema: {
      operationId: 'changeDisk',
      summary: 'Grow a persistent disk',
      params: DiskParams,
      body: PatchDiskRequest,
      response: answers(200, DiskRecord, [400, 401, 404, 409, 429, 503]),
    },
    handler: ({ reach, params, body }) => disks.patch(reach, params.disk, body),
  });
}
