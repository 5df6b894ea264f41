/** Invitations to own the first organization, with which the first person signs up. */
import { DEFAULT_INVITATION_S } from '@coppice/contract';
import { newId } from '../../../lib/new-id.ts';
import type { Database } from '../../db/database.ts';
import { generateInvitation, hashInvitation } from '../organizations/invitation-token.ts';

/** Creates an owner's invitation. Returns undefined if the organization has an owner or an open invitation for one. */
export async function inviteFirstOwner(db: Database, organizationId: string): Promise<string | undefined> {
  const isOwned = await hasOwner(db, organizationId);
  if (isOwned || (await hasOpenInvitation(db, organizationId))) return undefined;
  const invitation = generateInvitation();
  await ensureInvitation(db, organizationId, invitation);
  return invitation;
}

/** Stores an owner's invitation with this token. A stored invitation stays unchanged, accepted or not. */
export async function ensureInvitation(
  db: Database,
  organizationId: string,
  invitation: string,
): Promise<void> {
  const now = Date.now();
  await db
    .insertInto('invitations')
    .values({
      id: newId('inv'),
      organization_id: organizationId,
      email: null,
      role: 'owner',
      sha256: hashInvitation(invitation),
      created_at: now,
      expires_at: now + DEFAULT_INVITATION_S * 1000,
      accepted_at: null,
    })
    .onConflict((conflict) => conflict.column('sha256').doNothing())
    .execute();
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
