/** Creates the first organization, its first key and its owner's invitation, so that a new installation is usable. */
import { generateApiKey } from '@coppice/contract';
import { ensureInvitation, inviteFirstOwner } from './first-owner.ts';
import { insertOrganization, type Owner } from '../organizations/organization-store.ts';
import type { Database } from '../../db/database.ts';
import { keepBootstrapped, type Bootstrapped } from './bootstrapped.ts';
import { ensureApiKey } from '../../auth/api-key-store.ts';

const ORGANIZATION_NAME = 'default';

export interface BootstrapOptions {
  region: string;
  /** From the configuration, for automation; must be a key of this region. */
  bootstrapKey?: string;
  /** Invitation of the first owner, also from the configuration. */
  bootstrapInvitation?: string;
  /** Directory for files with the new secrets, for starts whose output must not show them. */
  bootstrapDir?: string;
}

/**
 * Creates organization `default` if there is no first one, with a key unless one is configured. Creates an invitation
 * while the organization has no owner and no open or configured invitation. Returns the created secrets.
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
    // Written before the commit: the database stores only their hashes.
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
