import { ImageRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';

export function addListImages(
  app: App,
  { runner, imageUses }: Pick<HttpParts, 'runner' | 'imageUses'>,
): void {
  app.route({
    method: 'GET',
    url: '/v1/images',
    config: { access: 'read' },
    schema: {
      operationId: 'listImages',
      summary: 'Images of yours that are prepared, and their shapes that are ready',
      description:
        'Those that your organization built or created sandboxes from, and the built-in ones. A create of one needs no ' +
        'pull, and one of a shape that is listed boots nothing.',
      response: answers(200, z.array(ImageRecord), [401, 503]),
    },
    handler: async (request) => imageUses.show(request.organizationId, await runner.listImages()),
  });
}
