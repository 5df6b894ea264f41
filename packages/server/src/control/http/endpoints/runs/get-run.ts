import { SandboxRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetRun(app: App, { sandboxes }: Pick<HttpParts, 'sandboxes'>): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id',
    config: { access: 'read' },
    schema: {
      operationId: 'getSandbox',
      summary: 'Get a sandbox, even after its end',
      params: SandboxParams,
      response: answers(200, SandboxRecord, [401, 404, 503]),
    },
    handler: (request) => sandboxes.get(request.reach, request.params.id),
  });
}
