/** Wire forms of shell sessions and terminals, and of errors inside a WebSocket. */
import { z } from 'zod';
import { ErrorAnswer } from '../error-body.ts';
import { boundedText, DEFAULT_CWD, GuestPath } from '../fields.ts';

const MAX_SHELL_ID_BYTES = 200;
/** A WebSocket message has at most 1 MiB, including the JSON around the command. */
const MAX_SHELL_COMMAND_BYTES = 1 << 20;
const MAX_COMMAND_BYTES = 131_071;
const MAX_TERMINAL_SIDE = 1000;

/** The last message of a failed stream. The close code says whether the client or the service caused the failure. */
export const StreamError = z
  .object({ type: z.literal('error'), data: z.string(), error: ErrorAnswer.shape.error })
  .meta({ id: 'StreamError' });
export type StreamError = z.infer<typeof StreamError>;

/** A message of the client on `GET /v1/runs/{id}/shell`. */
export const ShellRun = z
  .strictObject({
    type: z.literal('shell_run', { error: 'must be shell_run' }),
    id: boundedText(1, MAX_SHELL_ID_BYTES).describe(
      'Chosen by the client; all output of the command carries it.',
    ),
    command: boundedText(1, MAX_SHELL_COMMAND_BYTES),
  })
  .meta({ id: 'ShellRun' });
export type ShellRun = z.infer<typeof ShellRun>;

/** A message of the service on `GET /v1/runs/{id}/shell`. `shell_closed` or `error` is the last. */
export const ShellFrame = z
  .discriminatedUnion('type', [
    z.object({ type: z.enum(['shell_out', 'shell_err']), id: z.string(), data: z.string() }),
    z.object({ type: z.literal('shell_exit'), id: z.string(), code: z.int() }),
    z.object({ type: z.literal('shell_closed') }),
    StreamError,
  ])
  .meta({ id: 'ShellFrame' });
export type ShellFrame = z.infer<typeof ShellFrame>;

export const ShellQuery = z.strictObject({
  cwd: GuestPath.optional().describe(DEFAULT_CWD),
  user: boundedText(1, 256)
    .optional()
    .describe('Name, uid, name:group or uid:gid. Default: the image’s USER.'),
});
export type ShellQuery = z.infer<typeof ShellQuery>;

const sideError = `must be a whole number from 1 to ${MAX_TERMINAL_SIDE}`;
const Side = z
  .int({ error: sideError })
  .min(1, { error: sideError })
  .max(MAX_TERMINAL_SIDE, { error: sideError });
const sideText = (standard: number) =>
  z
    .string()
    .refine((text) => /^[1-9]\d{0,3}$/.test(text) && Number(text) <= MAX_TERMINAL_SIDE, { error: sideError })
    .default(String(standard))
    .meta({ type: 'integer', minimum: 1, maximum: MAX_TERMINAL_SIDE, default: standard });

export const TerminalQuery = ShellQuery.extend({
  cols: sideText(80),
  rows: sideText(24),
  command: boundedText(1, MAX_COMMAND_BYTES)
    .optional()
    .describe('Run as `/bin/sh -c <command>`. Default: an interactive bash, else sh.'),
});
export type TerminalQuery = z.infer<typeof TerminalQuery>;

/** A text message of the client on `GET /v1/runs/{id}/terminal`; binary messages are typed input. */
export const TerminalResize = z
  .strictObject({ type: z.literal('resize', { error: 'must be resize' }), cols: Side, rows: Side })
  .meta({ id: 'TerminalResize' });
export type TerminalResize = z.infer<typeof TerminalResize>;

/** Whose processes a connection of SSH starts, and where. The user name of the SSH client itself has no meaning. */
export const SshQuery = ShellQuery;
export type SshQuery = z.infer<typeof SshQuery>;

/**
 * Key type and key of an Ed25519 host key as in `known_hosts`: 4 + 11 bytes of the type, 4 + 32 bytes of the key. The
 * guest writes it, and it becomes a line of a file of the client's SSH: nothing else may be in it.
 */
const HOST_KEY = /^ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43}$/u;

/** How an SSH client recognizes a sandbox. */
export const SshHost = z
  .object({
    host_key: z
      .string()
      .regex(HOST_KEY)
      .describe(
        'Public host key, as in `known_hosts` after the name. Made in the sandbox; copies have their own.',
      ),
  })
  .meta({ id: 'SshHost' });
export type SshHost = z.infer<typeof SshHost>;

/** The only text message of the service on `GET /v1/runs/{id}/ssh/ws`, the last one; binary messages are SSH. */
export const SshEnd = z
  .discriminatedUnion('type', [z.object({ type: z.literal('ssh_closed') }), StreamError])
  .meta({ id: 'SshEnd' });
export type SshEnd = z.infer<typeof SshEnd>;

/** The only text message of the service on `GET /v1/runs/{id}/terminal`, the last one; binary messages are output. */
export const TerminalEnd = z
  .discriminatedUnion('type', [z.object({ type: z.literal('exit'), code: z.int() }), StreamError])
  .meta({ id: 'TerminalEnd' });
export type TerminalEnd = z.infer<typeof TerminalEnd>;
