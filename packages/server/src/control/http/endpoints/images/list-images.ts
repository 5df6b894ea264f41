import { ImageRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';

export function addListImages(
  app: App,
  { fleetImages, imageUses, builtImages }: Pick<HttpParts, 'fleetImages' | 'imageUses' | 'builtImages'>,
): void {
  app.route({
    method: 'GET',
    url: '/v1/images',
    config: { access: 'read' },
    schema: {
      operationId: 'listImages',
      summary: 'List your prepared images and their ready shapes',
      description:
        'Lists the images that your organization prepared, built from steps or created sandboxes from, and the built-in images. A create from ' +
        'one of them needs no pull; with a listed shape, it needs no boot.',
      response: answers(200, z.array(ImageRecord), [401, 503]),
    },
    handler: async ({ organizationId }) => {
      const built = await builtImages.list(organizationId);
      const owned = built.length === 0 ? [] : await fleetImages.listOwned({ organization: organizationId });
      return imageUses.show(organizationId, await fleetImages.listPrepared(), { built, owned });
    },
  });
}
