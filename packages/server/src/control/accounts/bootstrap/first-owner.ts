/** Invitations to own the first organization, with which the first person signs up. */
import { DEFAULT_INVITATION_S } from '@coppice/contract';
import { newId } from '../../../lib/new-id.ts';
import type { OrganizationNote } from '../../audit/organization/organization-entry.ts';
import type { Database } from '../../db/database.ts';
import { generateInvitation, hashInvitation } from '../organizations/invitation-token.ts';

/** Creates an owner's invitation. Returns undefined if the organization has an owner or an open invitation for one. */
export async function inviteFirstOwner(
  db: Database,
  organizationId: string,
): Promise<{ invitation: string; note: OrganizationNote } | undefined> {
  const isOwned = await hasOwner(db, organizationId);
  if (isOwned || (await hasOpenInvitation(db, organizationId))) return undefined;
  const invitation = generateInvitation();
  const [note] = await ensureInvitation(db, organizationId, invitation);
  return note && { invitation, note };
}

/**
 * Stores an owner's invitation with this token, and returns the audit entry to write. A stored invitation stays
 * unchanged, accepted or not, and needs none.
 */
export async function ensureInvitation(
  db: Database,
  organizationId: string,
  invitation: string,
): Promise<OrganizationNote[]> {
  const now = Date.now();
  const id = newId('inv');
  const expires_at = now + DEFAULT_INVITATION_S * 1000;
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('invitations')
    .values({
      id,
      organization_id: organizationId,
      email: null,
      role: 'owner',
      sha256: hashInvitation(invitation),
      created_at: now,
      expires_at,
      accepted_at: null,
    })
    .onConflict((conflict) => conflict.column('sha256').doNothing())
    .executeTakeFirst();
  if (numInsertedOrUpdatedRows !== 1n) return [];
  const data = { id, role: 'owner' as const, email: null, expires_at: new Date(expires_at).toISOString() };
  return [{ event: 'invitation.created', data }];
}

async function hasOwner(db: Database, organizationId: string): Promise<boolean> {
  const found = await db
    .selectFrom('memberships')
    .select('user_id')
    .where('organization_id', '=', organizationId)
    .where('role', '=', 'owner')
    .limit(1)
    .executeTakeFirst();
  return found !== undefined;
}

async function hasOpenInvitation(db: Database, organizationId: string): Promise<boolean> {
  const found = await db
    .selectFrom('invitations')
    .select('id')
    .where('organization_id', '=', organizationId)
    .where('role', '=', 'owner')
    .where('accepted_at', 'is', null)
    .where('expires_at', '>', Date.now())
    .limit(1)
    .executeTakeFirst();
  return found !== undefined;
}
