import { DestroyResult } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addDeleteRun(app: App, { sandboxes }: Pick<HttpParts, 'sandboxes'>): void {
  app.route({
    method: 'DELETE',
    url: '/v1/runs/:id',
    config: { access: 'full' },
    schema: {
      operationId: 'destroySandbox',
      summary: 'Destroy a sandbox, whatever runs in it',
      params: SandboxParams,
      response: answers(200, DestroyResult, [401, 404, 409, 503]),
    },
    handler: async (request) => {
      const driver = await sandboxes.getDriver(request.reach, request.params.id, 'destroy');
      return driver.destroy();
    },
  });
}
