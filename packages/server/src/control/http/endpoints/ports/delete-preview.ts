import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { PreviewParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addDeletePreview(
  app: App,
  { sandboxes, previews }: Pick<HttpParts, 'sandboxes' | 'previews'>,
): void {
  app.route({
    method: 'DELETE',
    url: '/v1/runs/:id/previews/:previewId',
    config: { access: 'full' },
    schema: {
      operationId: 'revokePreview',
      summary: 'Revoke a preview link; later requests with it are refused',
      params: PreviewParams,
      response: answers(204, NOTHING, [401, 404, 503]),
    },
    handler: async ({ reach, params }, reply) => {
      await sandboxes.get(reach, params.id);
      await previews.revoke(params.id, params.previewId);
      return reply.code(204).send(null);
    },
  });
}
