import { DiskRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { NoBody } from '../../answers/no-body.ts';
import { DiskParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addFlushDisk(
  app: App,
  { disks, openRequests }: Pick<HttpParts, 'disks' | 'openRequests'>,
): void {
  app.route({
    method: 'POST',
    url: '/v1/disks/:disk/flush',
    config: { access: 'full' },
    schema: {
      operationId: 'flushDisk',
      summary: 'Wait until everything that was written to a persistent disk is in the object store',
      params: DiskParams,
      body: NoBody,
      response: answers(200, DiskRecord, [400, 401, 404, 409, 429, 503]),
    },
    handler: ({ organizationId, reach, params }) =>
      openRequests.limit(organizationId, () => disks.flush(reach, params.disk)),
  });
}
