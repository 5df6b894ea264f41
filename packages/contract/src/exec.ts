/** Wire form of running a command and waiting for its end. */
import { z } from 'zod';
import { boundedInt, boundedText, GuestPath } from './fields.ts';

export const DEFAULT_EXEC_TIMEOUT_S = 30;
export const MAX_EXEC_TIMEOUT_S = 86_400;

/** The kernel's limit for one argument (MAX_ARG_STRLEN, with its NUL): `/bin/sh -c` takes the command as one. */
const MAX_COMMAND_BYTES = 131_071;
const MAX_ENV_ENTRIES = 1024;

const Env = z
  .record(
    z.string().regex(/^[^=\0]{1,256}$/, { error: 'a variable name is 1–256 characters without "=" and NUL' }),
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
    cwd: GuestPath.optional().describe("Default: the image's WORKDIR, else /workspace."),
    env: Env.optional(),
    user: boundedText(1, 256)
      .optional()
      .describe('Name, uid, name:group or uid:gid. Default: the image’s USER.'),
    stdin: z.string({ error: 'must be a string' }).optional().describe('Text given on standard input.'),
  })
  .meta({ id: 'ExecRequest' });
export type ExecRequest = z.infer<typeof ExecRequest>;

export const ExecResponse = z
  .object({
    exit_code: z.int().describe('128+n after signal n, 124 when the timeout elapsed.'),
    stdout: z.string(),
    stderr: z.string(),
    timed_out: z.boolean(),
    truncated: z.boolean().describe('True when a stream was longer than the limit and cut.'),
  })
  .meta({ id: 'ExecResponse' });
export type ExecResponse = z.infer<typeof ExecResponse>;
