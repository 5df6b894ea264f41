import { ListOperatedQuery, OperatedOrganization } from '@coppice/contract';
import { z } from 'zod';
import { hostMoment } from '../../../../lib/host-clock.ts';
import { listOrganizations } from '../../../operator/organization-desk.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { parseCursor } from '../../requests/cursor.ts';
import { sendPage } from '../../requests/page.ts';
import { ACCOUNT } from '../session/account-schema.ts';
import { buildOperated } from './operated-record.ts';

const PATH = '/account/operator/organizations';

export function addListOperated(app: App, { db, billing }: Pick<HttpParts, 'db' | 'billing'>): void {
  app.route({
    method: 'GET',
    url: PATH,
    schema: {
      ...ACCOUNT,
      operationId: 'listOperatedOrganizations',
      summary: 'List all organizations of the service, earliest first; for its operator',
      description: 'The next page is in the header `Link: <…>; rel="next"`.',
      querystring: ListOperatedQuery,
      response: answers(200, z.array(OperatedOrganization), [400, 401, 403, 503]),
    },
    handler: async ({ query: { limit, cursor } }, reply) => {
      const after = cursor === undefined ? undefined : parseCursor(cursor);
      const page = { limit: limit + 1, after };
      const { welcomeCents } = billing;
      const found = await listOrganizations(db, { now: hostMoment(), welcomeCents, page });
      const listed = {
        records: found.map(buildOperated),
        createdAt: found.map(({ createdAt }) => createdAt),
      };
      return sendPage(reply, listed, { path: PATH, limit, filter: new URLSearchParams() });
    },
  });
}
