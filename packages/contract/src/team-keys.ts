/** Wire form of what a team holds: its API keys and the secrets of its audit chains. */
import { z } from 'zod';
import { boundedInt, Timestamp } from './fields.ts';
import { DisplayName } from './people.ts';

const MAX_KEY_LIFE_S = 10 * 366 * 86_400;
const MAX_OVERLAP_S = 30 * 86_400;

/** What a key may do: everything, or only read. */
export const KEY_SCOPES = ['full', 'read'] as const;
export type KeyScope = (typeof KEY_SCOPES)[number];

const SCOPE_TEXT =
  '`read`: lists, records, logs, usage and files; nothing that changes something or runs in a sandbox.';
const TEAM_ONLY_TEXT =
  "Limits the key to its team's sandboxes, and to what belongs to them: snapshots, logs, history, usage, statements.";

/** Body of `POST …/keys`. */
export const CreateApiKeyRequest = z
  .strictObject({
    name: DisplayName,
    expires_in: boundedInt(1, MAX_KEY_LIFE_S, 'seconds')
      .optional()
      .describe('Without it the key does not expire.'),
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
      .describe('How long the old key stays good beside the new one.'),
    expires_in: CreateApiKeyRequest.shape.expires_in,
  })
  .meta({ id: 'RotateApiKeyRequest' });
export type RotateApiKeyRequest = z.infer<typeof RotateApiKeyRequest>;

export const ApiKeyRecord = z
  .object({
    id: z.string(),
    name: z.string(),
    last4: z.string().describe('The last characters of the key.'),
    scope: z.enum(KEY_SCOPES).describe(SCOPE_TEXT),
    team_only: z.boolean().describe(TEAM_ONLY_TEXT),
    created_at: Timestamp,
    last_used_at: Timestamp.nullable().describe('To the minute.'),
    expires_at: Timestamp.nullable(),
    revoked_at: Timestamp.nullable(),
  })
  .meta({ id: 'ApiKey' });
export type ApiKeyRecord = z.infer<typeof ApiKeyRecord>;

export const CreatedApiKey = ApiKeyRecord.extend({
  key: z.string().describe('The key itself: shown only here, stored nowhere.'),
}).meta({ id: 'CreatedApiKey' });
export type CreatedApiKey = z.infer<typeof CreatedApiKey>;

export const AuditSecretRecord = z
  .object({
    id: z.string().describe('`audit_key_id` of the sandboxes whose log it keys.'),
    created_at: Timestamp,
  })
  .meta({ id: 'AuditSecret' });
export type AuditSecretRecord = z.infer<typeof AuditSecretRecord>;

export const ShownAuditSecret = z
  .object({ id: z.string(), secret: z.string().describe('`cts_…`, with which a log is verified offline.') })
  .meta({ id: 'ShownAuditSecret' });
