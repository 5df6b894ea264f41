/**
 * Limits how fast the log of an organization grows: entries stay as long as the organization, and one key could make a
 * thousand in a second. The log itself is what is counted, so the limit holds over restarts and for several processes.
 *
 * Changes that take access away are never refused, because a flood by a stolen key must not keep that key from being revoked.
 * There are no more of these entries than of those that gave access. Nor are sign-ins refused, which cost a hash of a
 * password each.
 */
import { AppError, type AuditActor, type OrganizationAuditEvent } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../../db/database.ts';

const HOUR_MS = 3_600_000;
/**
 * Entries of an organization in an hour, beyond which these actors are refused. API keys are refused first, so that they
 * leave room for people. The others have limits of their own.
 */
export const MAX_HOURLY_ENTRIES: Partial<Record<AuditActor['type'], number>> = {
  api_key: 2_000,
  user: 4_000,
};

const ALWAYS_ALLOWED: ReadonlySet<OrganizationAuditEvent> = new Set([
  'api_key.revoked',
  // Its build has had room when it began: see requireRoom.
  'image.built',
  'image.deleted',
  'invitation.revoked',
  'member.removed',
  'team.member_removed',
  'password.changed',
  'registry.deleted',
  'secret.deleted',
  'session.ended',
  'session.started',
  'webhook.deleted',
]);

export interface Noted {
  event: OrganizationAuditEvent;
}

interface Addition {
  organizationId: string;
  by: AuditActor;
  notes: readonly Noted[];
}

/** Throws `rate_limited` if the log has too many entries of the last hour. Call only while the log is locked. */
export async function assertRoom(
  transaction: Database,
  { organizationId, by, notes }: Addition,
  nowMs: number,
): Promise<void> {
  if (notes.every(({ event }) => ALWAYS_ALLOWED.has(event))) return;
  await requireRoom(transaction, { organizationId, by }, nowMs);
}

/** Like {@link assertRoom}, at the beginning of what writes its entry much later. */
export async function requireRoom(
  db: Database,
  { organizationId, by }: Omit<Addition, 'notes'>,
  nowMs: number,
): Promise<void> {
  // A script that got into a page may have the key of a session, but not the session.
  const type = by.session_key === undefined ? by.type : 'api_key';
  const limit = MAX_HOURLY_ENTRIES[type];
  if (limit === undefined) return;
  // The numbers of entries have no gaps.
  const { rows } = await sql<{ ts: number }>`
    SELECT ts FROM organization_audit_entries
    WHERE organization_id = ${organizationId} AND seq =
      (SELECT max(seq) FROM organization_audit_entries WHERE organization_id = ${organizationId}) - ${limit - 1}::integer`.execute(
    db,
  );
  const [oldest] = rows;
  // A clock that was set back must not close the log until it is right again.
  if (oldest === undefined || oldest.ts > nowMs) return;
  const retryAfterS = Math.ceil((oldest.ts + HOUR_MS - nowMs) / 1000);
  if (retryAfterS <= 0) return;
  throw new AppError(
    'rate_limited',
    `${limit} changes of keys, members, secrets, webhooks and the like were made in the organization within an hour, ` +
      `which is the limit for ${type === 'api_key' ? 'API keys' : 'people'}; try again in ${retryAfterS} s`,
    { details: { retryAfterS } },
  );
}
