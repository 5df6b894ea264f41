/** Wire forms of images that are built from steps. */
import { z } from 'zod';
import { ERRORS, type ErrorCode } from '../errors.ts';
import { boundedInt, boundedIntText, boundedText, GuestPath, Timestamp } from '../fields.ts';

/** Most steps of one build. */
export const MAX_BUILD_STEPS = 128;
export const MAX_DOCKERFILE_BYTES = 256 << 10;
/** Bytes of one command of a step. */
export const MAX_RUN_BYTES = 64 << 10;
const MAX_ARGUMENTS = 256;
/** Variables that one step sets. */
const MAX_STEP_VARIABLES = 64;
const MAX_VALUE_BYTES = 32 << 10;
/** `*`, and also `?`, in one source: each may cost a search in every name of the context. */
const MAX_SOURCE_STARS = 8;
/** Bytes of output that a build keeps. */
export const MAX_BUILD_LOG_BYTES = 4 << 20;
export const DEFAULT_BUILD_TIMEOUT_S = 1800;
export const MAX_BUILD_TIMEOUT_S = 4 * 3600;
/** Events in one page of a log. */
export const MAX_BUILD_EVENTS = 1000;
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/u;

const StepVariables = z
  .record(
    z.string().regex(VARIABLE, { error: 'must be the name of a variable' }),
    boundedText(0, MAX_VALUE_BYTES),
  )
  .refine((variables) => Object.keys(variables).length <= MAX_STEP_VARIABLES, {
    error: `must have at most ${MAX_STEP_VARIABLES} variables`,
  });

const STEP_FIELDS = {
  run: z
    .union(
      [boundedText(1, MAX_RUN_BYTES), z.array(boundedText(1, MAX_RUN_BYTES)).min(1).max(MAX_ARGUMENTS)],
      {
        error: 'must be a command, or an array of a program and its arguments',
      },
    )
    .optional()
    .describe(
      'A command, run as `/bin/sh -c`; or a program and its arguments. It must end with exit code 0.',
    ),
  copy: z
    .strictObject({
      from_path: boundedText(1, 4095)
        .refine((path) => path.split('*').length - 1 <= MAX_SOURCE_STARS, {
          error: `must have at most ${MAX_SOURCE_STARS} *`,
        })
        .refine((path) => path.split('?').length - 1 <= MAX_SOURCE_STARS, {
          error: `must have at most ${MAX_SOURCE_STARS} ?`,
        })
        .describe(
          'File or directory of the context; `*` and `?` stand for characters of a name. Of a directory, the content is copied. A symbolic link is followed within the context.',
        ),
      to: GuestPath.describe(
        'Target in the image; with a slash at its end, or if it is a directory: into it.',
      ),
      owner: boundedText(1, 256).optional().describe('name, uid, name:group or uid:gid. Default: 0:0.'),
      mode: z
        .string()
        .regex(/^[0-7]{3,4}$/u, { error: 'must be three or four octal digits' })
        .optional()
        .describe('Permissions in octal. Default: those in the context.'),
    })
    .optional()
    .describe('Copies files of the context.'),
  env: StepVariables.optional().describe('Variables for the later steps and for the sandboxes of the image.'),
  workdir: GuestPath.optional().describe(
    'Directory for the later steps and for the sandboxes of the image; made if it is missing. A relative one is below the former.',
  ),
  user: boundedText(1, 256)
    .optional()
    .describe('User of the later steps and of the sandboxes of the image: name, uid, name:group or uid:gid.'),
};

/** One step of a build: exactly one of its fields is given. */
export const BuildStep = z
  .strictObject(STEP_FIELDS)
  .refine((step) => Object.values(step).filter((value) => value !== undefined).length === 1, {
    error: `must have exactly one of ${Object.keys(STEP_FIELDS).join(', ')}`,
  })
  .meta({ id: 'BuildStep' });
export type BuildStep = z.infer<typeof BuildStep>;

/** Fields of `POST /v1/images/build` that build an image from steps. */
export const STEPS_FIELDS = {
  from: boundedText(1, 512)
    .optional()
    .describe('Pinned reference of the image that the steps begin with; instead of `image`.'),
  dockerfile: boundedText(1, MAX_DOCKERFILE_BYTES)
    .optional()
    .describe('Text of a Dockerfile, instead of from and steps.'),
  build_args: StepVariables.optional().describe('With dockerfile: values of its ARG instructions.'),
  context: boundedText(1, 64)
    .optional()
    .describe('Id of an answer of POST /v1/images/contexts: the files that the steps copy.'),
  name: boundedText(1, 256)
    .optional()
    .describe(
      'With from: name of the new image, `app:1` or `built/app:1`. A later build with the name replaces it.',
    ),
  steps: z
    .array(BuildStep, { error: 'must be an array of steps' })
    .max(MAX_BUILD_STEPS, { error: `must have at most ${MAX_BUILD_STEPS} steps` })
    .optional()
    .describe('With from: the steps, one after another, in one sandbox.'),
  no_cache: z
    .boolean({ error: 'must be true or false' })
    .default(false)
    .describe(
      'Of a build: if true, all steps run. By default, a build begins with what the longest prefix of its steps left in an earlier build of your team with the same network policy and services of credentials.',
    ),
  timeout: boundedInt(1, MAX_BUILD_TIMEOUT_S, 'seconds')
    .default(DEFAULT_BUILD_TIMEOUT_S)
    .describe('Of a build: it fails after this time.'),
  detached: z
    .boolean({ error: 'must be true or false' })
    .default(false)
    .describe('Of a build: if true, the answer is sent at once. A build outlives its client all the same.'),
};

export const BUILD_STATES = ['running', 'done', 'failed', 'cancelled'] as const;
export type BuildState = (typeof BUILD_STATES)[number];

export const ImageBuild = z
  .object({
    id: z.string().meta({ example: 'build0123456789abcdef0123' }),
    status: z.enum(BUILD_STATES),
    name: z.string().describe('`built/name:tag`'),
    from: z.string().describe('As requested.'),
    image: z.string().nullable().describe('`built/name:tag@sha256:…`; null until the build is done.'),
    size_bytes: z.int().nullable().describe('Size of the image as stored; null until the build is done.'),
    run_id: z
      .string()
      .describe(
        'The sandbox of the build. It is destroyed at its end. There is none if all steps are cached.',
      ),
    steps: z.int().describe('Number of steps.'),
    steps_done: z.int(),
    error: z
      .object({
        code: z.enum(Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]]),
        message: z.string(),
      })
      .nullable()
      .describe('Why it failed.'),
    created_at: Timestamp,
    ended_at: Timestamp.nullable(),
  })
  .meta({ id: 'ImageBuild' });
export type ImageBuild = z.infer<typeof ImageBuild>;

/** One event of a build. `end` is the last. */
export const ImageBuildEvent = z
  .discriminatedUnion('type', [
    z.object({
      type: z.literal('step'),
      seq: z.int(),
      step: z.int().describe('Index of the step that begins.'),
      text: z.string().describe('The step, shortened.'),
      cached: z
        .boolean()
        .describe('Whether it does not run, because an earlier build has run the same steps.'),
    }),
    z.object({
      type: z.enum(['stdout', 'stderr']),
      seq: z.int(),
      step: z.int(),
      data: z.string(),
    }),
    z.object({
      type: z.literal('note'),
      seq: z.int(),
      text: z.string().describe('What the build does between the steps, and what the log leaves out.'),
    }),
    z.object({ type: z.literal('end'), seq: z.int(), build: ImageBuild }),
  ])
  .meta({ id: 'ImageBuildEvent' });
export type ImageBuildEvent = z.infer<typeof ImageBuildEvent>;

export const BuildLogQuery = z.strictObject({
  after: boundedIntText(0, Number.MAX_SAFE_INTEGER, 0).describe('The `seq` of the last event that you have.'),
});

export const BuildLog = z
  .object({
    events: z.array(ImageBuildEvent),
    next: z.int().describe('The `after` of the next page.'),
  })
  .meta({ id: 'BuildLog' });
export type BuildLog = z.infer<typeof BuildLog>;

export const DeleteImageQuery = z.strictObject({
  image: boundedText(1, 512).describe('Name of an image that was built from steps, `built/app:1`.'),
});

/** Answer of `POST /v1/images/contexts`. */
export const BuildContext = z
  .object({
    id: z.string().meta({ example: 'context0123456789abcdef0123' }),
    size_bytes: z.int(),
    expires_at: Timestamp.describe('When it is removed, unless a build uses it before.'),
  })
  .meta({ id: 'BuildContext' });
export type BuildContext = z.infer<typeof BuildContext>;
