import { DiskSnapshotRecord, ListDisksQuery } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { parseCursor } from '../../requests/cursor.ts';
import { sendIdentifiedPage } from '../../requests/page.ts';
import { DiskParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addListDiskSnapshots(app: App, { diskSnapshots }: Pick<HttpParts, 'diskSnapshots'>): void {
  app.route({
    method: 'GET',
    url: '/v1/disks/:disk/snapshots',
    config: { access: 'read' },
    schema: {
      operationId: 'listDiskSnapshots',
      summary: 'List the snapshots of a persistent disk, newest first',
      description: 'The next page is in the header `Link: <…>; rel="next"`.',
      params: DiskParams,
      querystring: ListDisksQuery,
      response: answers(200, z.array(DiskSnapshotRecord), [400, 401, 404, 503]),
    },
    handler: async ({ reach, params, query }, reply) => {
      const { limit, cursor } = query;
      const after = cursor === undefined ? {} : { after: parseCursor(cursor) };
      const listed = await diskSnapshots.list(reach, params.disk, { limit: limit + 1, ...after });
      const path = `/v1/disks/${encodeURIComponent(params.disk)}/snapshots`;
      return sendIdentifiedPage(reply, listed, { path, limit, filter: new URLSearchParams() });
    },
  });
}
