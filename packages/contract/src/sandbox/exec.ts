/** Wire forms of running a command: with one answer at its end, as a stream, and over a WebSocket. */
import { z } from 'zod';
import { boundedInt, boundedText, DEFAULT_CWD, GuestPath } from '../fields.ts';
import { StreamError } from './streams.ts';

export const DEFAULT_EXEC_TIMEOUT_S = 30;
export const MAX_EXEC_TIMEOUT_S = 86_400;

/** The kernel's limit for one argument (MAX_ARG_STRLEN includes a NUL): `/bin/sh -c` takes the command as one. */
const MAX_COMMAND_BYTES = 131_071;
const MAX_ENV_ENTRIES = 1024;

// oxlint-disable-next-line no-control-regex -- it refuses NUL
const VARIABLE_NAME = /^[^=\x00]{1,256}$/;

export const Env = z
  .record(
    z.string().regex(VARIABLE_NAME, { error: 'a variable name is 1–256 characters without "=" and NUL' }),
    boundedText(0, MAX_COMMAND_BYTES),
    { error: 'must be an object of strings' },
  )
  .refine((env) => Object.keys(env).length <= MAX_ENV_ENTRIES, {
    error: `must have at most ${MAX_ENV_ENTRIES} entries`,
  });

/** Body of `POST /v1/runs/{id}/exec`. */
export const ExecRequest = z
  .strictObject({
    command: boundedText(1, MAX_COMMAND_BYTES).describe('Run as `/bin/sh -c <command>`.'),
    timeout: boundedInt(1, MAX_EXEC_TIMEOUT_S, 'seconds').default(DEFAULT_EXEC_TIMEOUT_S),
    cwd: GuestPath.optional().describe(DEFAULT_CWD),
    env: Env.optional().describe('Added to the env of the sandbox; these values win.'),
    user: boundedText(1, 256)
      .optional()
      .describe('Name, uid, name:group or uid:gid. Default: the image’s USER.'),
    stdin: z.string({ error: 'must be a string' }).optional().describe('Text for standard input.'),
  })
  .meta({ id: 'ExecRequest' });
export type ExecRequest = z.infer<typeof ExecRequest>;

export const ExecResponse = z
  .object({
    exit_code: z.int().describe('128+n after signal n, 124 when the timeout elapsed.'),
    stdout: z.string(),
    stderr: z.string(),
    timed_out: z.boolean(),
    truncated: z
      .boolean()
      .describe(
        'True when a stream was cut: it exceeded the limit, or memory for the output of commands is scarce.',
      ),
  })
  .meta({ id: 'ExecResponse' });
export type ExecResponse = z.infer<typeof ExecResponse>;

/** Encoding of output frames: text, cut at character borders, with U+FFFD for invalid bytes; or exact bytes. */
export const OutputEncoding = z.enum(['utf8', 'base64'], { error: 'must be utf8 or base64' });
export type OutputEncoding = z.infer<typeof OutputEncoding>;

/**
 * One `data:` line of `POST /v1/runs/{id}/exec/stream`, one message of `GET /v1/runs/{id}/exec/ws`. `exit` or `error`
 * is the last.
 */
export const ExecFrame = z
  .discriminatedUnion('type', [
    z.object({ type: z.enum(['stdout', 'stderr']), data: z.string() }),
    z.object({
      type: z.literal('exit'),
      data: z
        .string()
        .describe('The exit code, decimal: 128+n after signal n, 124 when the timeout elapsed.'),
      timed_out: z.boolean(),
    }),
    StreamError,
  ])
  .meta({ id: 'ExecFrame' });
export type ExecFrame = z.infer<typeof ExecFrame>;

/** A signal that a client may send to a command: any that the guest's kernel knows by name. */
export const SignalName = z
  .string()
  .regex(/^(?:SIG)?[A-Z][A-Z0-9]{1,9}$/, { error: 'must be a name such as TERM or SIGTERM' });

/** A message of the client on `GET /v1/runs/{id}/exec/ws`, after the first one, which is an ExecRequest. */
export const ExecInput = z
  .discriminatedUnion(
    'type',
    [
      z.strictObject({ type: z.literal('stdin'), data: z.string({ error: 'must be a string' }) }),
      z.strictObject({ type: z.literal('stdin_eof') }),
      z.strictObject({ type: z.literal('signal'), signal: SignalName }),
    ],
    { error: 'must be stdin, stdin_eof or signal' },
  )
  .meta({ id: 'ExecInput' });
export type ExecInput = z.infer<typeof ExecInput>;
