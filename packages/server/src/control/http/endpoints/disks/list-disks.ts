import { DiskRecord, ListDisksQuery } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { parseCursor } from '../../requests/cursor.ts';
import { sendIdentifiedPage } from '../../requests/page.ts';
import type { HttpParts } from '../../parts.ts';

export function addListDisks(app: App, { disks }: Pick<HttpParts, 'disks'>): void {
  app.route({
    method: 'GET',
    url: '/v1/disks',
    config: { access: 'read' },
    schema: {
      operationId: 'listDisks',
      summary: 'List persistent disks, newest first, as they were last seen',
      description: 'The next page is in the header `Link: <…>; rel="next"`.',
      querystring: ListDisksQuery,
      response: answers(200, z.array(DiskRecord), [400, 401, 503]),
    },
    handler: async ({ reach, query }, reply) => {
      const { limit, cursor } = query;
      const after = cursor === undefined ? {} : { after: parseCursor(cursor) };
      const listed = await disks.list({ reach, limit: limit + 1, ...after });
      return sendIdentifiedPage(reply, listed, { path: '/v1/disks', limit, filter: new URLSearchParams() });
    },
  });
}
