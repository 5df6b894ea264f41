import { CommandRecord, CommandWaitQuery } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import { whenLeft } from '../../answers/when-left.ts';
import type { App } from '../../app.ts';
import { endOf } from '../../access/end-with-key.ts';
import { CommandParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addWaitCommand(
  app: App,
  { commands, openRequests }: Pick<HttpParts, 'commands' | 'openRequests'>,
): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/commands/:command/wait',
    config: { access: 'read' },
    schema: {
      operationId: 'waitCommand',
      summary: 'Wait until a command has ended',
      description: 'A command that still runs after `timeout` seconds is answered as `running`: ask again.',
      params: CommandParams,
      querystring: CommandWaitQuery,
      response: answers(200, CommandRecord, [400, 401, 404, 409, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, reach, params, query } = request;
      const over = AbortSignal.timeout(query.timeout * 1000);
      const signal = AbortSignal.any([whenLeft(reply), over, endOf(request, openRequests)]);
      const address = { reach, sandboxId: params.id, id: params.command };
      return openRequests.stream(organizationId, () =>
        commands.wait(address, { signal, mayWake: request.keyScope === 'full' }),
      );
    },
  });
}
