import { AuditSecretRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamParams } from '../session/account-schema.ts';

export function addListAuditSecrets(app: App, { teamSecrets }: Pick<HttpParts, 'teamSecrets'>): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/teams/:team/audit-secrets',
    config: { audience: 'team' },
    schema: {
      ...ACCOUNT,
      operationId: 'listAuditSecrets',
      summary: 'List the ids of the audit log secrets of a team, newest first',
      params: TeamParams,
      response: answers(200, z.array(AuditSecretRecord), [401, 403, 404, 503]),
    },
    handler: async ({ teamId }) => {
      const secrets = await teamSecrets.list(teamId);
      return secrets.map(({ id, createdAt }) => ({ id, created_at: new Date(createdAt).toISOString() }));
    },
  });
}
