import type { Database } from '../../db/database.ts';
import { noOrganization } from './access.ts';

/**
 * Lets one transaction at a time change what an organization has, until the transaction ends: a count or a role that it
 * reads stays true. Creates of sandboxes wait for each other here, each for one short transaction. Throws `not_found`.
 */
export async function lockOrganization(transaction: Database, organizationId: string): Promise<void> {
  const found = await transaction
    .selectFrom('organizations')
    .select('id')
    .where('id', '=', organizationId)
    .forNoKeyUpdate()
    .executeTakeFirst();
  if (found === undefined) throw noOrganization();
}
