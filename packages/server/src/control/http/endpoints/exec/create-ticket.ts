import { CreateTicketRequest, Ticket } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

const Body = z.preprocess((body) => body ?? {}, CreateTicketRequest);

export function addCreateTicket(
  app: App,
  { sandboxes, tickets }: Pick<HttpParts, 'sandboxes' | 'tickets'>,
): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/tickets',
    config: { access: 'full' },
    schema: {
      operationId: 'createTicket',
      summary:
        'Create a short-lived ticket for one WebSocket of the sandbox, for clients that cannot send headers',
      params: SandboxParams,
      body: Body,
      response: answers(201, Ticket, [400, 401, 404, 409, 503]),
    },
    handler: async (request, reply) => {
      const { reach, apiKeyId, body } = request;
      const { id } = request.params;
      await sandboxes.getDriver(reach, id);
      return reply.code(201).send(tickets.issue({ sandboxId: id, apiKeyId }, body.expires_in));
    },
  });
}
