import { ImageRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import type { HttpParts } from '../parts.ts';

export function addListImages(app: App, { runner }: Pick<HttpParts, 'runner'>): void {
  app.route({
    method: 'GET',
    url: '/v1/images',
    schema: {
      operationId: 'listImages',
      summary: 'Images that are prepared: a sandbox of one starts without a pull',
      response: answers(200, z.array(ImageRecord), [401, 503]),
    },
    handler: () => runner.listImages(),
  });
}
