/** Creates the first organization, its first key and its owner's invitation, so that a new installation is usable. */
import { generateApiKey, SERVICE_ACTOR } from '@coppice/contract';
import { ensureInvitation, inviteFirstOwner } from './first-owner.ts';
import { insertOrganization, type Owner } from '../organizations/organization-store.ts';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import type { OrganizationNote } from '../../audit/organization/organization-entry.ts';
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
export async function bootstrapOrganization(
  db: Database,
  audit: OrganizationAudit,
  options: BootstrapOptions,
): Promise<Bootstrapped> {
  const { region, bootstrapKey, bootstrapInvitation, bootstrapDir } = options;
  return db.transaction().execute(async (transaction) => {
    const made = await insertOrganization(transaction, { name: ORGANIZATION_NAME, region, isFirst: true });
    const owner = made ?? (await getFirstOwner(transaction));
    const { organizationId } = owner;
    const shown: Bootstrapped = {};
    const notes: OrganizationNote[] =
      made === undefined ? [] : [{ event: 'organization.created', data: { name: ORGANIZATION_NAME } }];
    if (bootstrapKey !== undefined) notes.push(...(await addKey(transaction, owner, bootstrapKey)));
    else if (made !== undefined) {
      shown.apiKey = generateApiKey(region);
      notes.push(...(await addKey(transaction, owner, shown.apiKey)));
    }
    if (bootstrapInvitation === undefined) {
      const invited = await inviteFirstOwner(transaction, organizationId);
      if (invited !== undefined) {
        shown.invitation = invited.invitation;
        notes.push(invited.note);
      }
    } else notes.push(...(await ensureInvitation(transaction, organizationId, bootstrapInvitation)));
    await audit.write(transaction, { organizationId, by: SERVICE_ACTOR, notes });
    // Written before the commit: the database stores only their hashes.
    return bootstrapDir === undefined ? shown : keepBootstrapped(shown, bootstrapDir);
  });
}

/** Stores a key unless it is stored. Returns the audit entry to write. */
async function addKey(db: Database, owner: Owner, key: string): Promise<OrganizationNote[]> {
  const added = await ensureApiKey(db, owner, key);
  if (added === undefined) return [];
  const { id, team_id, name, last4, scope, team_only } = added;
  return [
    { event: 'api_key.created', data: { id, team_id, name, last4, scope, team_only, expires_at: null } },
  ];
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
