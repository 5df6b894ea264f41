/** Wire form of prepared images and of their preparation. */
import { z } from 'zod';
import { ErrorAnswer } from './error-body.ts';
import { boundedText, Timestamp } from './fields.ts';
import { SandboxShape } from './sandbox.ts';

/** Beside the default one, in one build. */
export const MAX_BUILD_SHAPES = 8;

/** A create of such a shape boots nothing: a saved machine is there for it. */
export const ReadyShape = z
  .object({
    vcpus: z.int(),
    mem_mib: z.int(),
    disk_mib: z.int().describe('The smallest scratch disk, in MiB.'),
    max_disk_mib: z.int().describe('The largest: any size between them is served alike.'),
  })
  .meta({ id: 'ReadyShape' });
export type ReadyShape = z.infer<typeof ReadyShape>;

export const ImageRecord = z
  .object({
    image: z.string().describe('Resolved reference, registry/repository:tag@sha256:…'),
    digest: z.string(),
    size_bytes: z.int(),
    prepared_at: Timestamp,
    status: z.enum(['ready', 'preparing']),
    shapes: z
      .array(ReadyShape)
      .describe('Of sandboxes whose create takes the fast path; the first create of another boots a kernel.'),
  })
  .meta({ id: 'Image' });
export type ImageRecord = z.infer<typeof ImageRecord>;

/** Body of `POST /v1/images/build`. */
export const BuildImageRequest = z
  .strictObject({
    image: boundedText(1, 512),
    shapes: z
      .array(SandboxShape, { error: 'must be an array of objects' })
      .max(MAX_BUILD_SHAPES, { error: `must have at most ${MAX_BUILD_SHAPES} entries` })
      .default([])
      .describe('Made ready besides the default shape.'),
  })
  .meta({ id: 'BuildImageRequest' });
export type BuildImageRequest = z.infer<typeof BuildImageRequest>;

/** One `data:` line of `POST /v1/images/build` asked for as `text/event-stream`; `done` or `error` is the last. */
export const BuildImageEvent = z
  .discriminatedUnion('type', [
    z.object({
      type: z.literal('step'),
      step: z.string().describe('resolve, pull, flatten; template for each shape that is made ready.'),
      shape: z
        .object({ vcpus: z.int(), mem_mib: z.int(), disk_mib: z.int() })
        .optional()
        .describe('Of the template.'),
      elapsed_ms: z.number(),
    }),
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
