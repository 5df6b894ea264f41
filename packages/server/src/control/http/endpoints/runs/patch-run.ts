import { PatchSandboxRequest, SandboxRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

/** A request without a body only restarts the timer. */
const Body = z.preprocess((body) => body ?? {}, PatchSandboxRequest);

export function addPatchRun(app: App, { sandboxes }: Pick<HttpParts, 'sandboxes'>): void {
  app.route({
    method: 'PATCH',
    url: '/v1/runs/:id',
    config: { access: 'full' },
    schema: {
      operationId: 'changeSandbox',
      summary: 'Change settings of a sandbox, all or none, and restart its idle timer',
      description:
        'Also for a hibernated sandbox, which stays hibernated. Without settings, only the timer is restarted.',
      params: SandboxParams,
      body: Body,
      response: answers(200, SandboxRecord, [400, 401, 404, 409, 503]),
    },
    handler: ({ reach, params, body }) => sandboxes.configure(reach, params.id, body),
  });
}
