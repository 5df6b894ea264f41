import { CommandRecord, CommandStdinQuery } from '@coppice/contract';
import { answers, CONTENT } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { addRawBodies, BODY_DEADLINE_MS, cutOff, watchForStall } from '../../requests/raw-body.ts';
import { CommandParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

type Parts = Pick<HttpParts, 'commands' | 'openRequests' | 'limits'>;

/** The body is piped to the command as it comes, and waits while the command does not read. */
export function addCommandStdin(app: App, { commands, openRequests, limits }: Parts): void {
  addRawBodies(app, (scope) => {
    scope.route({
      method: 'POST',
      url: '/v1/runs/:id/commands/:command/stdin',
      config: { access: 'full', hasRawBody: true },
      schema: {
        operationId: 'writeCommandStdin',
        summary: 'Write to the standard input of a command',
        description:
          'The body is the input, as raw bytes. The answer is sent when the command has read it, up to what a pipe holds. Of ' +
          'several requests one writes at a time. For commands that were started with `stdin: true`.',
        consumes: ['application/octet-stream'],
        body: CONTENT,
        params: CommandParams,
        querystring: CommandStdinQuery,
        response: answers(200, CommandRecord, [400, 401, 404, 409, 429, 502, 503, 504]),
      },
      handler: async (request) => {
        const { organizationId, reach, params, query } = request;
        const address = { reach, sandboxId: params.id, id: params.command };
        using stall = watchForStall(request, limits.transferStallMs, 'guest_unreachable');
        const input = {
          content: request.raw,
          end: query.end,
          deadlineMs: BODY_DEADLINE_MS,
          signal: stall.signal,
        };
        await openRequests.limit(organizationId, () => commands.writeStdin(address, input));
        return commands.get(address);
      },
      onError: async (request) => cutOff(request),
    });
  });
}
