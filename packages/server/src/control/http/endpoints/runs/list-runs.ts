import { ListSandboxesQuery, SandboxRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { parseCursor } from '../../requests/cursor.ts';
import { LIVE_STATES } from '../../../sandbox/record/live-states.ts';
import { parseLabels } from '../../requests/label-filter.ts';
import { sendPage } from '../../requests/page.ts';
import type { HttpParts } from '../../parts.ts';

export function addListRuns(
  app: App,
  { sandboxes, accounts }: Pick<HttpParts, 'sandboxes' | 'accounts'>,
): void {
  app.route({
    method: 'GET',
    url: '/v1/runs',
    config: { access: 'read' },
    schema: {
      operationId: 'listSandboxes',
      summary: 'List sandboxes, newest first; only live ones unless a status is given',
      description:
        'Lists sandboxes of every team, or, if the key is limited to its team, of that team. The next page is in the ' +
        'header `Link: <…>; rel="next"`. In an installation with several controls, `operation` and `expires_at` of a sandbox ' +
        'may be those of up to 10 s ago; an `expires_at` is then too early, not too late. `GET /v1/runs/{id}` has the present ones.',
      querystring: ListSandboxesQuery,
      response: answers(200, z.array(SandboxRecord), [400, 401, 404, 503]),
    },
    handler: async (request, reply) => {
      const { limit, cursor, name, label = [], status = LIVE_STATES, team } = request.query;
      const { reach } = request;
      const listed = await sandboxes.list({
        reach: team === undefined ? reach : await accounts.teams.narrow(reach, team),
        statuses: status,
        name,
        labels: parseLabels(label),
        limit: limit + 1,
        ...(cursor === undefined ? {} : { after: parseCursor(cursor) }),
      });
      return sendPage(reply, listed, { path: '/v1/runs', limit, filter: toFilter(request.query) });
    },
  });
}

function toFilter({ name, label = [], status = [], team }: ListSandboxesQuery): URLSearchParams {
  const filter = new URLSearchParams();
  if (name !== undefined) filter.append('name', name);
  for (const one of label) filter.append('label', one);
  for (const one of status) filter.append('status', one);
  if (team !== undefined) filter.append('team', team);
  return filter;
}
