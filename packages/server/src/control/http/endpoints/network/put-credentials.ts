import { CredentialRecord, PutCredentialsRequest } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { readGrants } from '../../requests/requested-egress.ts';

export function addPutCredentials(
  app: App,
  parts: Pick<HttpParts, 'sandboxes' | 'grants' | 'rules' | 'runners' | 'secretValues'>,
): void {
  const { sandboxes, grants } = parts;
  app.route({
    method: 'PUT',
    url: '/v1/runs/:id/credentials',
    config: { access: 'full' },
    schema: {
      operationId: 'setCredentials',
      summary: 'Replace the credentials of a live sandbox',
      description:
        'Grants the credentials in the body and revokes all others; an empty body revokes all. The change is in force when ' +
        'this answers; for a hibernated sandbox, from its resume. If the request fails, the old credentials stay in force.',
      params: SandboxParams,
      body: PutCredentialsRequest,
      response: answers(200, z.array(CredentialRecord), [400, 401, 404, 409, 413, 429, 503]),
    },
    handler: async (request) => {
      const driver = await sandboxes.getDriver(request.reach, request.params.id);
      await driver.egress.setGrants(await readGrants(request.organizationId, request.body, parts));
      return grants.list(driver.row);
    },
  });
}
