import { ExecRequest, ExecResponse } from '@coppice/contract';
import { runCommand } from '../../../sandbox/commands/run-command.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { DelayedJson } from '../../answers/delayed-json.ts';
import { buildErrorBody, logError, toAppError } from '../../answers/error-mapper.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

type Parts = Pick<
  HttpParts,
  'sandboxes' | 'environments' | 'audit' | 'openRequests' | 'outputBudget' | 'limits'
>;

/** The command runs to its end when the client leaves: nothing here listens for that. */
export function addExec(app: App, parts: Parts): void {
  const { sandboxes, environments, audit, openRequests, outputBudget, limits } = parts;
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/exec',
    config: { access: 'full' },
    schema: {
      operationId: 'exec',
      summary: 'Run a command and wait for its end',
      description:
        'The status line is sent when the command starts. Of each stream the answer keeps at least the first 64 KiB, and at most 16 MiB; ' +
        'a command for which 64 KiB cannot be kept is refused with 429 before it starts. If the sandbox is lost after the ' +
        'start, the service sends an error object and breaks the connection in the middle of the body.',
      params: SandboxParams,
      body: ExecRequest,
      response: answers(200, ExecResponse, [400, 401, 404, 409, 413, 429, 502, 503, 504]),
    },
    handler: async (request, reply) => {
      const { organizationId, reach, body } = request;
      const { id } = request.params;
      const driver = await sandboxes.getDriver(reach, id);
      const answer = new DelayedJson(reply);
      const onStarted = () => answer.begin();
      try {
        await openRequests.limit(organizationId, async () => {
          // Held until the answer is sent: a client that does not read must not bypass the budget.
          using output = outputBudget.open(organizationId, limits.execOutputBytes);
          const ran = await driver.use(async () => {
            const filled = await environments.fill(driver.row, body);
            const { runner } = driver;
            return runCommand({ runner, audit, log: request.log, id, output, onStarted, request: filled });
          });
          await answer.end(ExecResponse.parse(ran));
        });
      } catch (error) {
        if (!answer.hasBegun) throw error;
        const mapped = toAppError(error);
        logError(mapped, request);
        answer.fail(buildErrorBody(mapped, request));
      }
      return reply;
    },
  });
}
