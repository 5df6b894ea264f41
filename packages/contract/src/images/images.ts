/** Wire forms of prepared images and of their preparation. */
import { z } from 'zod';
import { ErrorAnswer } from '../error-body.ts';
import { boundedText, Timestamp } from '../fields.ts';
import { SandboxShape } from '../sandbox/sandbox.ts';

/** Maximum number of shapes in one build, not counting the default shape. */
export const MAX_BUILD_SHAPES = 8;

/** A shape with a saved machine: a create of this shape does not boot a kernel. */
export const ReadyShape = z
  .object({
    vcpus: z.int(),
    mem_mib: z.int(),
    disk_mib: z.int().describe('Smallest scratch disk, in MiB.'),
    max_disk_mib: z.int().describe('Largest scratch disk, in MiB. Any size between the two is equally fast.'),
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
      .describe('Shapes whose create takes the fast path. The first create of another shape boots a kernel.'),
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
      .describe('Shapes to prepare in addition to the default shape.'),
  })
  .meta({ id: 'BuildImageRequest' });
export type BuildImageRequest = z.infer<typeof BuildImageRequest>;

/** One `data:` line of `POST /v1/images/build` as `text/event-stream`; `done` or `error` is the last event. */
export const BuildImageEvent = z
  .discriminatedUnion('type', [
    z.object({
      type: z.literal('step'),
      step: z.string().describe('resolve, pull, flatten; template for each prepared shape.'),
      shape: z
        .object({ vcpus: z.int(), mem_mib: z.int(), disk_mib: z.int() })
        .optional()
        .describe('Shape of the template.'),
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
