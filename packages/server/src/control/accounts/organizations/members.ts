/** Members of organizations. An organization never loses its last owner. */
import { AppError, type AuditActor, type MemberRecord, type Role } from '@coppice/contract';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import type { OrganizationNote } from '../../audit/organization/organization-entry.ts';
import type { Database } from '../../db/database.ts';
import { lockOrganization } from './lock-organization.ts';

/** The person and the organization of a membership. */
export interface Membership {
  organizationId: string;
  userId: string;
}

interface CurrentMember {
  role: Role;
  email: string;
}

export class Members {
  readonly #db: Database;

  readonly #audit: OrganizationAudit;

  constructor(db: Database, audit: OrganizationAudit) {
    this.#db = db;
    this.#audit = audit;
  }

  /** Lists members in the order in which they joined. */
  async list(organizationId: string): Promise<MemberRecord[]> {
    const rows = await this.#db
      .selectFrom('memberships')
      .innerJoin('users', 'users.id', 'memberships.user_id')
      .select(['users.id', 'email', 'name', 'role', 'memberships.created_at'])
      .where('organization_id', '=', organizationId)
      .orderBy('memberships.created_at')
      .orderBy('users.id')
      .execute();
    return rows.map(({ id, email, name, role, created_at }) => ({
      id,
      email,
      name,
      role,
      joined_at: new Date(created_at).toISOString(),
    }));
  }

  async changeRole(membership: Membership, role: Role, by: AuditActor): Promise<void> {
    const { organizationId, userId } = membership;
    await this.#change(membership, by, async (transaction, { role: current, email }) => {
      if (current === 'owner' && role !== 'owner')
        await assertOtherOwner(transaction, organizationId, userId);
      await transaction
        .updateTable('memberships')
        .set({ role })
        .where('organization_id', '=', organizationId)
        .where('user_id', '=', userId)
        .execute();
      if (current === role) return [];
      const data = { user_id: userId, email, role, previous: current };
      return [{ event: 'member.role_changed', data }];
    });
  }

  /** Removes the person from the organization and from its teams. The teams' keys stay. */
  async remove(membership: Membership, by: AuditActor): Promise<void> {
    const { organizationId, userId } = membership;
    await this.#change(membership, by, async (transaction, { role: current, email }) => {
      if (current === 'owner') await assertOtherOwner(transaction, organizationId, userId);
      // Deleted first: adding the person to a team holds a lock on this row until that is committed.
      await transaction
        .deleteFrom('memberships')
        .where('organization_id', '=', organizationId)
        .where('user_id', '=', userId)
        .execute();
      await transaction
        .deleteFrom('team_members')
        .where('user_id', '=', userId)
        .where('team_id', 'in', (teams) =>
          teams.selectFrom('teams').select('id').where('organization_id', '=', organizationId),
        )
        .execute();
      return [{ event: 'member.removed', data: { user_id: userId, email, role: current } }];
    });
  }

  /** Serializes changes of an organization's members, so that its last two owners cannot leave at the same time. */
  async #change(
    { organizationId, userId }: Membership,
    by: AuditActor,
    change: (transaction: Database, current: CurrentMember) => Promise<OrganizationNote[]>,
  ): Promise<void> {
    await this.#db.transaction().execute(async (transaction) => {
      await lockOrganization(transaction, organizationId);
      const found = await transaction
        .selectFrom('memberships')
        .innerJoin('users', 'users.id', 'memberships.user_id')
        .select(['role', 'email'])
        .where('organization_id', '=', organizationId)
        .where('user_id', '=', userId)
        .executeTakeFirst();
      if (found === undefined)
        throw new AppError('not_found', 'there is no such member of this organization');
      const notes = await change(transaction, found);
      await this.#audit.write(transaction, { organizationId, by, notes });
    });
  }
}

async function assertOtherOwner(db: Database, organizationId: string, userId: string): Promise<void> {
  const other = await db
    .selectFrom('memberships')
    .select('user_id')
    .where('organization_id', '=', organizationId)
    .where('role', '=', 'owner')
    .where('user_id', '<>', userId)
    .limit(1)
    .executeTakeFirst();
  if (other === undefined)
    throw new AppError(
      'invalid_state',
      'this is the last owner of the organization; make another member one first',
    );
}
