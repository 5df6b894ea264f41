import { CommandRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { CommandParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetCommand(app: App, { commands }: Pick<HttpParts, 'commands'>): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/commands/:command',
    config: { access: 'read' },
    schema: {
      operationId: 'getCommand',
      summary: 'Get a command, even after the end of its sandbox',
      params: CommandParams,
      response: answers(200, CommandRecord, [401, 404, 503]),
    },
    handler: ({ reach, params: { id: sandboxId, command: id } }) => commands.get({ reach, sandboxId, id }),
  });
}
