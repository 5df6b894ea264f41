/** The first organization, its first key and its first owner's invitation, so that a new installation can be used at once. */
import { generateApiKey } from '@coppice/contract';
import { ensureInvitation, inviteFirstOwner } from './first-owner.ts';
import { insertOrganization, type Owner } from './organization-store.ts';
import type { Database } from '../db/database.ts';
import { keepBootstrapped, type Bootstrapped } from './bootstrapped.ts';
import { ensureApiKey } from '../auth/api-key-store.ts';

const ORGANIZATION_NAME = 'default';

export interface BootstrapOptions {
  region: string;
  /** From the configuration, for automation; must be a key of this region. */
  bootstrapKey?: string;
  /** The same for the invitation. */
  bootstrapInvitation?: string;
  /** For files with what is made, where it must not be shown. */
  bootstrapDir?: string;
}

/**
 * Makes organization `default` when there is no first one, with a key unless that is given. For as long as nobody owns it,
 * and no invitation to do so is open or given, it makes one.
 */
export async function bootstrapOrganization(db: Database, options: BootstrapOptions): Promise<Bootstrapped> {
  const { region, bootstrapKey, bootstrapInvitation, bootstrapDir } = options;
  return db.transaction().execute(async (transaction) => {
    const made = await insertOrganization(transaction, { name: ORGANIZATION_NAME, region, isFirst: true });
    const owner = made ?? (await getFirstOwner(transaction));
    const shown: Bootstrapped = {};
    if (bootstrapKey !== undefined) await ensureApiKey(transaction, owner, bootstrapKey);
    else if (made !== undefined) {
      shown.apiKey = generateApiKey(region);
      await ensureApiKey(transaction, owner, shown.apiKey);
    }
    if (bootstrapInvitation === undefined) {
      const invitation = await inviteFirstOwner(transaction, owner.organizationId);
      if (invitation !== undefined) shown.invitation = invitation;
    } else await ensureInvitation(transaction, owner.organizationId, bootstrapInvitation);
    // Before the commit: only their hashes are in the database.
    return bootstrapDir === undefined ? shown : keepBootstrapped(shown, bootstrapDir);
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
