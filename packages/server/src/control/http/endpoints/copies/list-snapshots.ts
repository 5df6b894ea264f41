import { ListSnapshotsQuery, SnapshotRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { parseCursor } from '../../requests/cursor.ts';
import { sendPage } from '../../requests/page.ts';
import type { HttpParts } from '../../parts.ts';

export function addListSnapshots(app: App, { snapshots }: Pick<HttpParts, 'snapshots'>): void {
  app.route({
    method: 'GET',
    url: '/v1/snapshots',
    config: { access: 'read' },
    schema: {
      operationId: 'listSnapshots',
      summary: 'List snapshots, newest first',
      description: 'The next page is in the header `Link: <…>; rel="next"`.',
      querystring: ListSnapshotsQuery,
      response: answers(200, z.array(SnapshotRecord), [400, 401, 503]),
    },
    handler: async (request, reply) => {
      const { limit, cursor, run_id: runId } = request.query;
      const listed = await snapshots.list({
        reach: request.reach,
        limit: limit + 1,
        ...(runId === undefined ? {} : { runId }),
        ...(cursor === undefined ? {} : { after: parseCursor(cursor) }),
      });
      const filter = new URLSearchParams(runId === undefined ? {} : { run_id: runId });
      return sendPage(reply, listed, { path: '/v1/snapshots', limit, filter });
    },
  });
}
