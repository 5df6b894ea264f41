import { ListSandboxesQuery, SandboxRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import { parseCursor } from '../cursor.ts';
import { LIVE_STATES } from '../../sandbox/live-list.ts';
import { parseLabels } from '../label-filter.ts';
import { sendPage } from '../page.ts';
import type { HttpParts } from '../parts.ts';

export function addListRuns(app: App, { sandboxes }: Pick<HttpParts, 'sandboxes'>): void {
  app.route({
    method: 'GET',
    url: '/v1/runs',
    schema: {
      operationId: 'listSandboxes',
      summary: 'List sandboxes, newest first; active ones unless a status is given',
      description: 'The next page is in the header `Link: <…>; rel="next"`.',
      querystring: ListSandboxesQuery,
      response: answers(200, z.array(SandboxRecord), [400, 401, 503]),
    },
    handler: async (request, reply) => {
      const { limit, cursor, label = [], status = LIVE_STATES } = request.query;
      const listed = await sandboxes.list({
        organizationId: request.organizationId,
        statuses: status,
        labels: parseLabels(label),
        limit: limit + 1,
        ...(cursor === undefined ? {} : { after: parseCursor(cursor) }),
      });
      return sendPage(reply, listed, { path: '/v1/runs', limit, filter: toFilter(request.query) });
    },
  });
}

function toFilter({ label = [], status = [] }: ListSandboxesQuery): URLSearchParams {
  const filter = new URLSearchParams();
  for (const one of label) filter.append('label', one);
  for (const one of status) filter.append('status', one);
  return filter;
}
