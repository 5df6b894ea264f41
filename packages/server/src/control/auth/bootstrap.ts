/** The first organization, its first key and its first owner's invitation, so that a new installation can be used at once. */
import { generateApiKey } from '@coppice/contract';
import { ensureInvitation, inviteFirstOwner } from '../accounts/first-owner.ts';
import { insertOrganization, type Owner } from '../accounts/organization-store.ts';
import type { Database } from '../db/database.ts';
import { ensureApiKey } from './api-key-store.ts';

const ORGANIZATION_NAME = 'default';

export interface BootstrapOptions {
  region: string;
  /** From the configuration, for automation; must be a key of this region. */
  bootstrapKey?: string;
  /** The same for the invitation. */
  bootstrapInvitation?: string;
}

/** What was made and is to be shown once: what was given is known to whoever gave it. */
export interface Bootstrapped {
  apiKey?: string;
  /** For the first owner. */
  invitation?: string;
}

/**
 * Makes organization `default` when there is no first one, with a key. For as long as nobody owns it, and no invitation to
 * do so is open, it makes one. Where key or invitation are given nothing is made that would have to be shown.
 */
export async function bootstrapOrganization(db: Database, options: BootstrapOptions): Promise<Bootstrapped> {
  const { region, bootstrapKey, bootstrapInvitation } = options;
  return db.transaction().execute(async (transaction) => {
    const made = await insertOrganization(transaction, { name: ORGANIZATION_NAME, region, isFirst: true });
    const owner = made ?? (await getFirstOwner(transaction));
    const shown: Bootstrapped = {};
    if (bootstrapKey !== undefined) await ensureApiKey(transaction, owner, bootstrapKey);
    else if (made !== undefined) {
      shown.apiKey = generateApiKey(region);
      await ensureApiKey(transaction, owner, shown.apiKey);
    }
    if (bootstrapInvitation !== undefined)
      await ensureInvitation(transaction, owner.organizationId, bootstrapInvitation);
    if (bootstrapKey !== undefined || bootstrapInvitation !== undefined) return shown;
    const invitation = await inviteFirstOwner(transaction, owner.organizationId);
    return invitation === undefined ? shown : { ...shown, invitation };
  });
}

async function getFirstOwner(db: Database): Promise<Owner> {
  const found = await db
    .selectFrom('teams')
    .innerJoin('organizations', 'organizations.id', 'teams.organization_id')
    .select(['teams.id', 'organization_id'])
    .where('organizations.is_first', '=', true)
    .orderBy('teams.created_at')
    .executeTakeFirstOrThrow();
  return { organizationId: found.organization_id, teamId: found.id };
}
