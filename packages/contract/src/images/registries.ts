/** Wire form of an organization's credentials for image registries. No answer contains a password. */
import { z } from 'zod';
import { boundedText, Timestamp } from '../fields.ts';

const HAS_CONTROL = /\p{Cc}/u;
const MAX_USERNAME_BYTES = 256;
const MAX_PASSWORD_BYTES = 16_384;

/** Body of `PUT /v1/registries/{registry}`. */
export const PutRegistryRequest = z
  .strictObject({
    username: boundedText(1, MAX_USERNAME_BYTES)
      .refine((text) => !text.includes(':'), {
        error: 'must not contain ":", because basic authentication splits there',
      })
      .refine((text) => !HAS_CONTROL.test(text), { error: 'must not contain control characters' }),
    password: boundedText(1, MAX_PASSWORD_BYTES)
      .refine((text) => !HAS_CONTROL.test(text), {
        error: 'must not contain control characters, such as a line break at its end',
      })
      .describe('Password or access token; stored encrypted, never shown.'),
  })
  .meta({ id: 'PutRegistryRequest' });
export type PutRegistryRequest = z.infer<typeof PutRegistryRequest>;

export const RegistryRecord = z
  .object({
    registry: z.string().meta({ example: 'ghcr.io' }),
    username: z.string(),
    updated_at: Timestamp,
  })
  .meta({ id: 'Registry' });
export type RegistryRecord = z.infer<typeof RegistryRecord>;
