/** Wire form of prepared images and of their preparation. */
import { z } from 'zod';
import { ErrorAnswer } from './error-body.ts';
import { boundedText, Timestamp } from './fields.ts';

export const ImageRecord = z
  .object({
    image: z.string().describe('Resolved reference, registry/repository:tag@sha256:…'),
    digest: z.string(),
    size_bytes: z.int(),
    prepared_at: Timestamp,
    status: z.enum(['ready', 'preparing']),
  })
  .meta({ id: 'Image' });
export type ImageRecord = z.infer<typeof ImageRecord>;

/** Body of `POST /v1/images/build`. */
export const BuildImageRequest = z
  .strictObject({ image: boundedText(1, 512) })
  .meta({ id: 'BuildImageRequest' });
export type BuildImageRequest = z.infer<typeof BuildImageRequest>;

/** One `data:` line of `POST /v1/images/build` asked for as `text/event-stream`; `done` or `error` is the last. */
export const BuildImageEvent = z
  .discriminatedUnion('type', [
    z.object({ type: z.literal('step'), step: z.string(), elapsed_ms: z.number() }),
    z.object({
      type: z.literal('progress'),
      step: z.string(),
      done_bytes: z.int(),
      total_bytes: z.int(),
      elapsed_ms: z.number(),
    }),
    z.object({ type: z.literal('done'), image: ImageRecord }),
    z.object({ type: z.literal('error'), error: ErrorAnswer.shape.error }),
  ])
  .meta({ id: 'BuildImageEvent' });
export type BuildImageEvent = z.infer<typeof BuildImageEvent>;
