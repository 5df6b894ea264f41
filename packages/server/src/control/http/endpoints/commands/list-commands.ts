import { CommandRecord, ListCommandsQuery } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { parseCursor } from '../../requests/cursor.ts';
import { sendPage } from '../../requests/page.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addListCommands(app: App, { commands }: Pick<HttpParts, 'commands'>): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/commands',
    config: { access: 'read' },
    schema: {
      operationId: 'listCommands',
      summary: 'List the commands of a sandbox that outlive their client, newest first',
      description: 'The next page is in the header `Link: <…>; rel="next"`.',
      params: SandboxParams,
      querystring: ListCommandsQuery,
      response: answers(200, z.array(CommandRecord), [400, 401, 404, 503]),
    },
    handler: async ({ reach, params, query }, reply) => {
      const { limit, cursor, state, tag } = query;
      const after = cursor === undefined ? {} : { after: parseCursor(cursor) };
      const listed = await commands.list(reach, params.id, { limit: limit + 1, state, tag, ...after });
      const filter = new URLSearchParams();
      if (state !== undefined) filter.set('state', state);
      if (tag !== undefined) filter.set('tag', tag);
      return sendPage(reply, listed, { path: `/v1/runs/${params.id}/commands`, limit, filter });
    },
  });
}
