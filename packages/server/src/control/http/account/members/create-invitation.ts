import { CreatedInvitation, CreateInvitationRequest } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, OrganizationParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

const Body = z.preprocess((body) => body ?? {}, CreateInvitationRequest);

export function addCreateInvitation(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'POST',
    url: '/account/organizations/:organization/invitations',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'createInvitation',
      summary: 'Invite a person to an organization; the invitation is shown only once',
      params: OrganizationParams,
      body: Body,
      response: answers(201, CreatedInvitation, [400, 401, 403, 404, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, body } = request;
      return reply.code(201).send(await accounts.invitations.create(organizationId, body, actorOf(request)));
    },
  });
}
