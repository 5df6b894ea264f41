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
      summary: 'List your prepared images and their ready shapes',
      description:
        'Lists the images that your organization built or created sandboxes from, and the built-in images. A create from ' +
        'one of them needs no pull; with a listed shape, it needs no boot.',
      response: answers(200, z.array(ImageRecord), [401, 503]),
    },
    handler: async (request) => imageUses.show(request.organizationId, await runner.listImages()),
  });
}
