import { CommandRecord, CreateCommandRequest } from '@coppice/contract';
import { newCommandId } from '../../../commands/command-ids.ts';
import { answers } from '../../answers/answers.ts';
import { sendDelayed } from '../../answers/send-delayed.ts';
import { whenLeft } from '../../answers/when-left.ts';
import type { App } from '../../app.ts';
import { endOf } from '../../access/end-with-key.ts';
import { createOnce, IdempotencyHeaders } from '../../access/idempotent.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

/** The command continues when the client leaves, whether it is detached or not. */
export function addCreateCommand(
  app: App,
  parts: Pick<HttpParts, 'commands' | 'idempotency' | 'openRequests' | 'secretDigest'>,
): void {
  const { commands, openRequests } = parts;
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/commands',
    config: { access: 'full' },
    schema: {
      operationId: 'createCommand',
      summary: 'Start a command that outlives its client',
      description:
        'It survives a lost client, a restart of the service, and hibernation; copies of the sandbox have it under another id. ' +
        'The newest 64 MiB of its output are kept while the sandbox lives. It does not keep an idle sandbox from ending.',
      params: SandboxParams,
      headers: IdempotencyHeaders,
      body: CreateCommandRequest,
      response: answers(201, CommandRecord, [400, 401, 404, 409, 413, 422, 429, 502, 503, 504]),
    },
    handler: async (request, reply) => {
      const { reach, body, organizationId } = request;
      const left = whenLeft(reply);
      const sandboxId = request.params.id;
      const answer = await createOnce(parts, request, reply, {
        body: parts.secretDigest.hide(body),
        newSubjectId: newCommandId,
        create: async (id) => ({
          status: 201,
          body: await commands.start({ reach, sandboxId, id, request: body }),
        }),
        find: (id) => commands.findSubject({ reach, sandboxId, id }),
      });
      if (body.detached) return reply.code(201).send(answer.body);
      const signal = AbortSignal.any([left, endOf(request, openRequests)]);
      // When the service stops, or the key is revoked, the record says that the command runs.
      const wait = async () =>
        CommandRecord.parse(
          await commands.wait({ reach, sandboxId, id: answer.body.id }, { signal, mayWake: true }),
        );
      await openRequests.stream(organizationId, () => sendDelayed(request, reply, wait));
      return reply;
    },
  });
}
