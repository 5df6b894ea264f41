import { SandboxTree } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetTree(app: App, { sandboxes }: Pick<HttpParts, 'sandboxes'>): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/tree',
    config: { access: 'read' },
    schema: {
      operationId: 'getSandboxTree',
      summary:
        'Get the family of a sandbox: all sandboxes that descend from the same root by forks and snapshots',
      params: SandboxParams,
      response: answers(200, SandboxTree, [401, 404, 503]),
    },
    handler: ({ reach, params }) => sandboxes.getTree(reach, params.id),
  });
}
