import { AppError, ListSandboxesQuery, SandboxRecord, type SandboxState } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import { parseCursor } from '../cursor.ts';
import { sendPage } from '../page.ts';
import type { HttpParts } from '../parts.ts';

const ACTIVE: readonly SandboxState[] = ['creating', 'running', 'hibernated'];

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
      const { limit, cursor, label = [], status = ACTIVE } = request.query;
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

function parseLabels(filters: readonly string[]): Record<string, string> {
  const labels = new Map<string, string>();
  for (const filter of filters) {
    const colon = filter.indexOf(':');
    const name = filter.slice(0, colon);
    const value = filter.slice(colon + 1);
    if (labels.has(name) && labels.get(name) !== value) {
      throw new AppError('invalid_request', `label: "${name}" is asked for with two values`);
    }
    labels.set(name, value);
  }
  return Object.fromEntries(labels);
}

function toFilter({ label = [], status = [] }: ListSandboxesQuery): URLSearchParams {
  const filter = new URLSearchParams();
  for (const one of label) filter.append('label', one);
  for (const one of status) filter.append('status', one);
  return filter;
}
