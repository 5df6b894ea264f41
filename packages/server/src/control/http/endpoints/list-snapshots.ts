import { ListSnapshotsQuery, SnapshotRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import { formatCursor, parseCursor } from '../cursor.ts';
import type { HttpParts } from '../parts.ts';

export function addListSnapshots(app: App, { snapshots }: Pick<HttpParts, 'snapshots'>): void {
  app.route({
    method: 'GET',
    url: '/v1/snapshots',
    schema: {
      operationId: 'listSnapshots',
      summary: 'List snapshots, newest first',
      description: 'The next page is in the header `Link: <…>; rel="next"`.',
      querystring: ListSnapshotsQuery,
      response: answers(200, z.array(SnapshotRecord), [400, 401, 503]),
    },
    handler: async (request, reply) => {
      const { limit, cursor, run_id: runId } = request.query;
      const { records, createdAt } = await snapshots.list({
        organizationId: request.organizationId,
        limit: limit + 1,
        ...(runId === undefined ? {} : { runId }),
        ...(cursor === undefined ? {} : { after: parseCursor(cursor) }),
      });
      const page = records.slice(0, limit);
      const last = page.at(-1);
      const lastCreatedAt = createdAt[page.length - 1];
      if (records.length > limit && last !== undefined && lastCreatedAt !== undefined) {
        const next = buildNext(request.query, formatCursor({ createdAt: lastCreatedAt, id: last.id }));
        reply.header('link', `<${next}>; rel="next"`);
      }
      return page;
    },
  });
}

/** Relative, so that it holds behind any proxy. */
function buildNext({ limit, run_id }: ListSnapshotsQuery, cursor: string): string {
  const query = new URLSearchParams({ limit: String(limit), cursor });
  if (run_id !== undefined) query.set('run_id', run_id);
  return `/v1/snapshots?${query.toString()}`;
}
