/** Wire form of the named secrets of an organization, which credentials refer to. No answer contains a value. */
import { z } from 'zod';
import { Timestamp } from '../fields.ts';

export const MAX_SECRET_BYTES = 8192;

/** Short and lower-case: most values of secrets are not accepted by mistake as a name, which answers show. */
export const SECRET_NAME = /^(?=.{1,40}$)[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*$/u;

export const SecretName = z
  .string({ error: 'must be the name of a secret, as a string' })
  .regex(SECRET_NAME, {
    error:
      'must be the name of a secret: 1–40 of a–z, 0–9, and single "-" or "_" between them; begins with a letter',
  })
  .meta({ example: 'openai-production' });

/** Schema of a secret that is sent in a header. `typeError` is the message for what is not a string. */
export function secretValue(typeError: string): z.ZodString {
  return z
    .string({ error: typeError })
    .min(1, { error: 'must not be empty' })
    .refine((value) => !/\p{Cc}/u.test(value), {
      error: 'must not contain control characters, such as a line break at its end',
    })
    .refine((value) => /^[\x21-\x7e\p{Cc}]*$/u.test(value), {
      error:
        'must be printable ASCII without spaces, because it is sent in a header: give the key alone, without "Bearer"',
    })
    .refine((value) => value.length <= MAX_SECRET_BYTES, {
      error: `must be at most ${MAX_SECRET_BYTES} bytes`,
    })
    .describe('Stored encrypted, never shown, and never present in the sandbox.');
}

/** Takes the place of a secret in credentials. */
export const SecretReference = z
  .strictObject({ secret: SecretName.describe('Name of a secret that the organization has stored.') })
  .meta({ id: 'SecretReference' });
export type SecretReference = z.infer<typeof SecretReference>;

/** Body of `PUT /v1/secrets/{name}`. */
export const PutSecretRequest = z
  .strictObject({ value: secretValue('must be a string') })
  .meta({ id: 'PutSecretRequest' });
export type PutSecretRequest = z.infer<typeof PutSecretRequest>;

export const SecretRecord = z
  .object({
    name: SecretName,
    version: z.int().describe('1 for the first value; each PUT adds 1.'),
    sandboxes: z.int().describe('Sandboxes that have not ended and whose credentials name the secret.'),
    outdated_sandboxes: z
      .int()
      .describe(
        'Those of them that run and may still use an earlier value. They get the current one in a few seconds; wait ' +
          'for 0 before you revoke an earlier value at its service. A hibernated sandbox gets it at its resume.',
      ),
    created_at: Timestamp,
    updated_at: Timestamp.describe('Time of the last PUT.'),
  })
  .meta({ id: 'Secret' });
export type SecretRecord = z.infer<typeof SecretRecord>;
