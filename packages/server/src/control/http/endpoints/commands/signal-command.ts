import { CommandRecord, CommandSignal } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { CommandParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addSignalCommand(app: App, { commands }: Pick<HttpParts, 'commands'>): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/commands/:command/signal',
    config: { access: 'full' },
    schema: {
      operationId: 'signalCommand',
      summary: 'Send a signal to the process group of a command',
      params: CommandParams,
      body: CommandSignal,
      response: answers(200, CommandRecord, [400, 401, 404, 409, 413, 502, 503, 504]),
    },
    handler: async ({ reach, params, body }) => {
      const address = { reach, sandboxId: params.id, id: params.command };
      await commands.signal(address, body.signal);
      return commands.get(address);
    },
  });
}
