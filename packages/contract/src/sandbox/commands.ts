/** Wire forms of commands that outlive their client. */
import { z } from 'zod';
import { boundedInt, boundedIntText, boundedText, FlagText, Timestamp } from '../fields.ts';
import { ExecRequest, OutputEncoding, SignalName } from './exec.ts';
import { StreamError } from './streams.ts';

/** One year. */
const MAX_TIMEOUT_S = 31_536_000;
const MAX_TAG_BYTES = 128;
const MAX_PAGE_BYTES = 1 << 20;
const STANDARD_PAGE_BYTES = 256 << 10;
const MAX_LISTED = 1000;

export const COMMAND_STATES = ['running', 'exited', 'lost'] as const;
export type CommandState = (typeof COMMAND_STATES)[number];

const Tag = boundedText(1, MAX_TAG_BYTES).describe('Chosen by the caller, to find the command again.');

/** Body of `POST /v1/runs/{id}/commands`. */
export const CreateCommandRequest = z
  .strictObject({
    ...ExecRequest.pick({ command: true, cwd: true, env: true, user: true }).shape,
    detached: z
      .boolean({ error: 'must be true or false' })
      .default(true)
      .describe(
        'If false, the answer is sent when the command has ended. It outlives its client all the same.',
      ),
    timeout: boundedInt(0, MAX_TIMEOUT_S, 'seconds')
      .default(0)
      .describe('The command is killed after this time; 0: never.'),
    stdin: z
      .union([z.string(), z.literal(true)], { error: 'must be a string, or true' })
      .optional()
      .describe('Text for standard input, which is then closed; true: open for `POST …/stdin`.'),
    tag: Tag.optional(),
  })
  .meta({ id: 'CreateCommandRequest' });
export type CreateCommandRequest = z.infer<typeof CreateCommandRequest>;

export const CommandRecord = z
  .object({
    id: z.string().meta({ example: 'cmd9f86d081884c7d659a2f' }),
    run_id: z.string(),
    command: z.string(),
    tag: z.string().nullable(),
    state: z
      .enum(COMMAND_STATES)
      .describe(
        '`lost`: the sandbox ended before the command, or was rolled back to a time before its start, or it could not be started.',
      ),
    exit_code: z.int().nullable().describe('128+n after signal n, 124 when the timeout elapsed.'),
    timed_out: z.boolean(),
    started_at: Timestamp,
    ended_at: Timestamp.nullable(),
    output_bytes: z.int().describe('Bytes of standard output and standard error together, as last seen.'),
    dropped_bytes: z.int().describe('How many of the first of these bytes are kept no more.'),
  })
  .meta({ id: 'CommandRecord' });
export type CommandRecord = z.infer<typeof CommandRecord>;

export const ListCommandsQuery = z.strictObject({
  limit: boundedIntText(1, MAX_LISTED, 100),
  cursor: z.string().max(256).optional(),
  state: z.enum(COMMAND_STATES, { error: 'must be running, exited or lost' }).optional(),
  tag: Tag.optional(),
});
export type ListCommandsQuery = z.infer<typeof ListCommandsQuery>;

const streamError = 'must be stdout or stderr';
const offset = boundedIntText(0, Number.MAX_SAFE_INTEGER, 0).describe(
  'Where to begin: a number of bytes of standard output and standard error together. A part that has been dropped is left out.',
);

/** Query of `GET /v1/runs/{id}/commands/{command}/output`. */
export const CommandOutputQuery = z.strictObject({
  offset,
  stream: z.enum(['stdout', 'stderr'], { error: streamError }).optional().describe('Default: both.'),
  encoding: OutputEncoding.default('utf8'),
  limit: boundedIntText(1, MAX_PAGE_BYTES, STANDARD_PAGE_BYTES).describe(
    'Bytes in a page at most. A stream of events has no limit.',
  ),
});
export type CommandOutputQuery = z.infer<typeof CommandOutputQuery>;

const Part = z.object({
  type: z.enum(['stdout', 'stderr']),
  data: z.string(),
  offset: z.int().describe('Of the first byte.'),
});

/** A page of output. */
export const CommandOutput = z
  .object({
    output: z.array(Part),
    dropped_bytes: z.int().describe('Bytes from the requested offset on that are kept no more.'),
    next_offset: z.int().describe('Where the next page begins.'),
    is_last: z.boolean().describe('True if the command has ended and no output follows.'),
  })
  .meta({ id: 'CommandOutput' });
export type CommandOutput = z.infer<typeof CommandOutput>;

/** One event of output as a stream. Its id is the offset of the next one. `exit` or `error` is the last. */
export const CommandEvent = z
  .discriminatedUnion('type', [
    Part,
    z.object({ type: z.literal('dropped'), offset: z.int(), next_offset: z.int() }),
    z.object({
      type: z.literal('exit'),
      data: z.string().describe('The exit code, decimal.'),
      timed_out: z.boolean(),
    }),
    StreamError,
  ])
  .meta({ id: 'CommandEvent' });
export type CommandEvent = z.infer<typeof CommandEvent>;

/** Body of `POST /v1/runs/{id}/commands/{command}/signal`. */
export const CommandSignal = z.strictObject({ signal: SignalName }).meta({ id: 'CommandSignal' });
export type CommandSignal = z.infer<typeof CommandSignal>;

/** Query of `POST /v1/runs/{id}/commands/{command}/stdin`. */
export const CommandStdinQuery = z.strictObject({
  end: FlagText.describe('Closes standard input after the body.'),
});

const MAX_WAIT_S = 3600;

/** Query of `GET /v1/runs/{id}/commands/{command}/wait`. */
export const CommandWaitQuery = z.strictObject({
  timeout: boundedIntText(0, MAX_WAIT_S, 60).describe(
    'Seconds after which the answer is the record as it is then.',
  ),
});
