/** Wire forms of prepared images and of their preparation. */
import { z } from 'zod';
import { ErrorAnswer } from '../error-body.ts';
import { boundedText, Timestamp } from '../fields.ts';
import { CreateSandboxRequest, SandboxShape } from '../sandbox/sandbox.ts';
import { STEPS_FIELDS } from './image-builds.ts';

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

/** Network and credentials of the sandbox of a build, as in a create. */
const { network, network_profile, credentials, credentials_v2 } = CreateSandboxRequest.shape;
const EGRESS_OF_BUILD = { network, network_profile, credentials, credentials_v2 };

/** Body of `POST /v1/images/build`. */
export const BuildImageRequest = z
  .strictObject({
    image: boundedText(1, 512)
      .optional()
      .describe('Pinned reference of an image to prepare. Exactly one of image and from is given.'),
    shapes: z
      .array(SandboxShape, { error: 'must be an array of objects' })
      .max(MAX_BUILD_SHAPES, { error: `must have at most ${MAX_BUILD_SHAPES} entries` })
      .default([])
      .describe('With image: shapes to prepare in addition to the default shape.'),
    ...STEPS_FIELDS,
    ...SandboxShape.shape,
    ...EGRESS_OF_BUILD,
  })
  .refine(
    ({ image, from, dockerfile }) =>
      [image, from, dockerfile].filter((one) => one !== undefined).length === 1,
    {
      path: ['image'],
      error: 'give exactly one of image, to prepare one, and from or dockerfile, to build one',
    },
  )
  .refine(({ image, name }) => (image === undefined) === (name !== undefined), {
    path: ['name'],
    error: 'give it with from or dockerfile, and only with them',
  })
  .refine(({ from, steps }) => (from === undefined) === (steps === undefined), {
    path: ['steps'],
    error: 'give them with from, and only with it',
  })
  .refine(({ dockerfile, build_args }) => dockerfile !== undefined || build_args === undefined, {
    path: ['build_args'],
    error: 'belongs to dockerfile; put values into the steps',
  })
  .refine(
    ({ image, shapes, context }) => (image !== undefined ? context === undefined : shapes.length === 0),
    {
      path: ['shapes'],
      error: 'belongs to image, and context to a build; prepare the image once it is built',
    },
  )
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
