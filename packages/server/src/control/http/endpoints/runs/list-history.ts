import { HistoryRecord, ListHistoryQuery } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { parseCursor } from '../../requests/cursor.ts';
import { parseLabels } from '../../requests/label-filter.ts';
import { sendPage } from '../../requests/page.ts';
import type { HttpParts } from '../../parts.ts';

const PATH = '/v1/runs/history';

export function addListHistory(app: App, { billing }: Pick<HttpParts, 'billing'>): void {
  app.route({
    method: 'GET',
    url: PATH,
    config: { access: 'read' },
    schema: {
      operationId: 'listHistory',
      summary: 'List ended sandboxes, with their usage and cost, latest end first',
      description:
        'Excludes creates that never ran; `GET /v1/runs/{id}` still returns their records. The next page is in the ' +
        'header `Link: <…>; rel="next"`.',
      querystring: ListHistoryQuery,
      response: answers(200, z.array(HistoryRecord), [400, 401, 429, 503]),
    },
    handler: async (request, reply) => {
      const { limit, cursor, label = [], status = [], from, to, image } = request.query;
      const after = cursor === undefined ? undefined : parseCursor(cursor);
      const { records, endedAt } = await billing.history({
        reach: request.reach,
        statuses: status,
        labels: parseLabels(label),
        from,
        to,
        image,
        limit: limit + 1,
        ...(after === undefined ? {} : { after: { endedAt: after.createdAt, id: after.id } }),
      });
      const filter = toFilter(request.query);
      return sendPage(reply, { records, createdAt: endedAt }, { path: PATH, limit, filter });
    },
  });
}

function toFilter({ label = [], status = [], from, to, image }: ListHistoryQuery): URLSearchParams {
  const filter = new URLSearchParams();
  for (const one of label) filter.append('label', one);
  for (const one of status) filter.append('status', one);
  if (from !== undefined) filter.append('from', new Date(from).toISOString());
  if (to !== undefined) filter.append('to', new Date(to).toISOString());
  if (image !== undefined) filter.append('image', image);
  return filter;
}
