/** Settings of a sandbox that a create, a restore or a change gives it. */
import { z } from 'zod';
import { boundedInt, boundedText, GuestPath, Moment, utf8Length } from '../fields.ts';
import { Env } from './exec.ts';

export const DEFAULT_IDLE_TIMEOUT_S = 300;
const MAX_IDLE_TIMEOUT_S = 30 * 86_400;
const MAX_LIFETIME_S = 365 * 86_400;
const MAX_LABELS = 32;
const MAX_NAME_LENGTH = 64;
const MAX_CHARACTER_BYTES = 4;
const MAX_VARIABLES = 256;
const MAX_ENV_BYTES = 32 << 10;

const LABEL_KEY = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/;
const HAS_CONTROL = /\p{Cc}/u;

export const Labels = z
  .record(
    z.string().regex(LABEL_KEY, { error: 'a label name is 1–63 of A–Z, a–z, 0–9, ".", "_", "/", "-"' }),
    boundedText(0, 256),
    { error: 'must be an object of strings' },
  )
  .refine((labels) => Object.keys(labels).length <= MAX_LABELS, {
    error: `must have at most ${MAX_LABELS} entries`,
  });

/** Name of a sandbox. No other sandbox of the team has it until this one ends. */
export const SandboxName = boundedText(1, MAX_NAME_LENGTH * MAX_CHARACTER_BYTES)
  .refine((text) => Array.from(text).length <= MAX_NAME_LENGTH, {
    error: `must be at most ${MAX_NAME_LENGTH} characters`,
  })
  .refine((text) => !HAS_CONTROL.test(text), { error: 'must not contain control characters' })
  .refine((text) => text.trim() === text, { error: 'must not begin or end with a space' })
  .meta({ maxLength: MAX_NAME_LENGTH });

/** Idle time after which the sandbox is destroyed, or hibernated; 0 disables it. */
export const IdleTimeout = boundedInt(0, MAX_IDLE_TIMEOUT_S, 'seconds, 0 disables');

export const Lifetime = boundedInt(1, MAX_LIFETIME_S, 'seconds');

/** The latest end that can be set: one year ahead. */
export const MAX_END_AHEAD_MS = MAX_LIFETIME_S * 1000;

/** Time at which the sandbox ends; `ends_at` in the record, whose `expires_at` is the earliest end of all. */
export const ExpiresAt = Moment.describe(
  'The sandbox is destroyed at this time, whatever requests are open: in the future, at most a year ahead. Of this and ' +
    'max_lifetime, the earlier one counts.',
);

export const AutoHibernate = z
  .boolean({ error: 'must be true or false' })
  .describe(
    'When idle, the sandbox is hibernated instead of destroyed, and the next request that uses it resumes it.',
  );

/** Environment of every process that is started through the API. It may hold secrets: no answer contains it. */
export const SandboxEnv = Env.refine((env) => Object.keys(env).length <= MAX_VARIABLES, {
  error: `must have at most ${MAX_VARIABLES} entries`,
})
  // JSON is sealed and sent, and an escape takes six bytes for one.
  .refine((env) => utf8Length(JSON.stringify(env)) <= MAX_ENV_BYTES, {
    error: `must have at most ${MAX_ENV_BYTES} bytes as JSON`,
  })
  .describe(
    'Variables of commands, shells and terminals, above those of the image. Variables of credentials that the sandbox has ' +
      'win over these, and the env of a command over both. Stored encrypted, and in no answer.',
  );

export const SandboxCwd = GuestPath.refine((path) => path.startsWith('/'), {
  error: 'must be an absolute path',
}).describe(
  'Where commands, shells and terminals start, and relative paths of files. It must exist when it is used. Default: the ' +
    'image’s WORKDIR, else /workspace.',
);

/** Body of `PATCH /v1/runs/{id}`: changes the given settings, all or none, and restarts the idle timer in any case. */
export const PatchSandboxRequest = z
  .strictObject({
    timeout: IdleTimeout.optional(),
    name: SandboxName.nullable().optional().describe('As in a create; null for none.'),
    labels: Labels.optional().describe('Replaces all labels.'),
    auto_hibernate: AutoHibernate.optional(),
    max_lifetime: boundedInt(0, MAX_LIFETIME_S, 'seconds, 0 or null for no maximum')
      .nullable()
      .optional()
      .describe('Seconds from the create, which must not have passed yet; 0 or null for no maximum.'),
    expires_at: ExpiresAt.nullable().optional(),
    env: SandboxEnv.optional().describe(
      'Replaces all variables, for processes that are started from now on.',
    ),
    cwd: SandboxCwd.nullable().optional().describe('As in a create; null for that of the image.'),
  })
  .meta({ id: 'PatchSandboxRequest' });
export type PatchSandboxRequest = z.infer<typeof PatchSandboxRequest>;
