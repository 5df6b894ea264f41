import { ExecFrame, ExecRequest, OutputEncoding } from '@coppice/contract';
import { z } from 'zod';
import { AuditedCommand } from '../../../streams/audited-command.ts';
import { sendOutput } from '../../../streams/output-frames.ts';
import { answers, contents, eventOf } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { endOf } from '../../access/end-with-key.ts';
import { EventStream } from '../../answers/event-stream.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { buildErrorFrame } from '../../answers/stream-error.ts';

const EVENTS = contents('Output as the command writes it, then how the command ended.', {
  'text/event-stream': eventOf(ExecFrame),
});

type Parts = Pick<HttpParts, 'sandboxes' | 'environments' | 'audit' | 'openRequests'>;

/** The command is killed when the client leaves, and waits when the client does not read. */
export function addExecStream(app: App, { sandboxes, environments, audit, openRequests }: Parts): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/exec/stream',
    config: { access: 'full' },
    schema: {
      operationId: 'execStream',
      summary: 'Run a command and stream its output',
      description:
        'Server-sent events, one ExecFrame per `data:` line; `exit` or `error` is the last. The command is killed when ' +
        'the client disconnects, and waits when the client stops reading.',
      params: SandboxParams,
      querystring: z.strictObject({ encoding: OutputEncoding.default('utf8') }),
      body: ExecRequest,
      response: { ...answers(200, ExecFrame, [404, 409, 413, 502, 504]), 200: EVENTS },
    },
    handler: async (request, reply) => {
      const { organizationId, reach, body } = request;
      const { id } = request.params;
      const driver = await sandboxes.getDriver(reach, id);
      const run = async (): Promise<void> => {
        const parts = { runner: driver.runner, audit, log: request.log, id };
        const filled = await environments.fill(driver.row, body);
        const command = await AuditedCommand.start({ ...parts, request: filled, isInteractive: false });
        const events = new EventStream(reply);
        const kill = (): void => command.kill();
        events.left.addEventListener('abort', kill, { once: true });
        const over = endOf(request, openRequests);
        over.addEventListener('abort', kill, { once: true });
        // The end may have come while the command was started.
        if (over.aborted || events.left.aborted) kill();
        try {
          await sendOutput(command, request.query.encoding, events);
        } catch (error) {
          await events.send(buildErrorFrame(error, request, openRequests));
        } finally {
          over.removeEventListener('abort', kill);
          events.end();
        }
      };
      await openRequests.stream(organizationId, () => driver.use(run));
      return reply;
    },
  });
}
