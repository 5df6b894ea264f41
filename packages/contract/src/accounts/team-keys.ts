/** Wire forms of a team's API keys and of the secrets of its audit chains. */
import { z } from 'zod';
import { boundedInt, Timestamp } from '../fields.ts';
import { DisplayName } from './people.ts';

const MAX_KEY_LIFE_S = 10 * 366 * 86_400;
const MAX_OVERLAP_S = 30 * 86_400;

/** Scopes of a key: everything, or only reads. */
export const KEY_SCOPES = ['full', 'read'] as const;
export type KeyScope = (typeof KEY_SCOPES)[number];

const SCOPE_TEXT =
  '`read`: lists, records, logs, usage and files; no request that changes anything or runs in a sandbox.';
const TEAM_ONLY_TEXT =
  "Limits the key to its team's sandboxes and their snapshots, logs, history, usage and statements.";

/** Body of `POST …/keys`. */
export const CreateApiKeyRequest = z
  .strictObject({
    name: DisplayName,
    expires_in: boundedInt(1, MAX_KEY_LIFE_S, 'seconds')
      .optional()
      .describe('Default: the key does not expire.'),
    scope: z
      .enum(KEY_SCOPES, { error: `must be ${KEY_SCOPES.join(' or ')}` })
      .default('full')
      .describe(SCOPE_TEXT),
    team_only: z.boolean({ error: 'must be true or false' }).default(false).describe(TEAM_ONLY_TEXT),
  })
  .meta({ id: 'CreateApiKeyRequest' });
export type CreateApiKeyRequest = z.infer<typeof CreateApiKeyRequest>;

/** Body of `POST …/keys/{key}/rotate`. */
export const RotateApiKeyRequest = z
  .strictObject({
    overlap_seconds: boundedInt(0, MAX_OVERLAP_S, 'seconds')
      .default(0)
      .describe('How long the old key stays valid alongside the new one.'),
    expires_in: CreateApiKeyRequest.shape.expires_in,
  })
  .meta({ id: 'RotateApiKeyRequest' });
export type RotateApiKeyRequest = z.infer<typeof RotateApiKeyRequest>;

export const ApiKeyRecord = z
  .object({
    id: z.string(),
    name: z.string(),
    last4: z.string().describe('The last four characters of the key.'),
    scope: z.enum(KEY_SCOPES).describe(SCOPE_TEXT),
    team_only: z.boolean().describe(TEAM_ONLY_TEXT),
    created_at: Timestamp,
    last_used_at: Timestamp.nullable().describe('Accurate to the minute.'),
    expires_at: Timestamp.nullable(),
    revoked_at: Timestamp.nullable(),
  })
  .meta({ id: 'ApiKey' });
export type ApiKeyRecord = z.infer<typeof ApiKeyRecord>;

export const CreatedApiKey = ApiKeyRecord.extend({
  key: z.string().describe('The key itself: shown only here, and not stored.'),
}).meta({ id: 'CreatedApiKey' });
export type CreatedApiKey = z.infer<typeof CreatedApiKey>;

/** Answer of `POST …/session-key`. */
export const SessionKey = z
  .object({
    id: z.string(),
    key: z
      .string()
      .describe(
        'An API key for calls below `/v1`. The session has the same one each time; it is not stored.',
      ),
    team_id: z.string().describe('The team of what is created with it.'),
    team_only: z
      .boolean()
      .describe('True unless the person is an owner now. Limits the key as it does other keys.'),
    expires_at: Timestamp.describe('The end of the session, which each use of the key postpones.'),
  })
  .meta({ id: 'SessionKey' });
export type SessionKey = z.infer<typeof SessionKey>;

export const AuditSecretRecord = z
  .object({
    id: z.string().describe('`audit_key_id` of the sandboxes whose audit chain this secret keys.'),
    created_at: Timestamp,
  })
  .meta({ id: 'AuditSecret' });
export type AuditSecretRecord = z.infer<typeof AuditSecretRecord>;

export const ShownAuditSecret = z
  .object({ id: z.string(), secret: z.string().describe('`cts_…`; verifies a log offline.') })
  .meta({ id: 'ShownAuditSecret' });
