/** Organizations and their members. Each organization always has an owner. */
import {
  AppError,
  type AccountRecord,
  type AuditActor,
  type OrganizationRecord,
  type Role,
} from '@coppice/contract';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import type { Database } from '../../db/database.ts';
import { noOrganization, ownsFirst } from './access.ts';
import type { Invited } from './invitations.ts';
import { insertOrganization } from './organization-store.ts';
import type { SignUpMode } from './people.ts';

/** Limited because each organization comes with its own credit. */
const MAX_OWNED = 10;

export interface OrganizationsParts {
  db: Database;
  region: string;
  signUp: SignUpMode;
  audit: OrganizationAudit;
}

export class Organizations {
  readonly #parts: OrganizationsParts;

  constructor(parts: OrganizationsParts) {
    this.#parts = parts;
  }

  /** Creates an organization. If sign-up is by invitation, throws `forbidden` unless the person owns the first one. */
  async create({ userId, email, clientAddress }: Invited, name: string): Promise<OrganizationRecord> {
    const { db, signUp } = this.#parts;
    const isOperator = await ownsFirst(db, userId);
    if (signUp === 'invited' && !isOperator)
      throw new AppError(
        'forbidden',
        'only owners of the first organization may create others on this service',
      );
    const id = await db.transaction().execute(async (transaction) => {
      // Serializes a person's creates, so that each counts the organizations of the one before.
      await transaction.selectFrom('users').select('id').where('id', '=', userId).forUpdate().execute();
      const owned = await countOwned(transaction, userId);
      if (owned >= MAX_OWNED && !isOperator)
        throw new AppError('rate_limited', `you own ${owned} organizations, which is the limit`);
      return this.insertOwned(transaction, name, { userId, email, clientAddress });
    });
    return this.get(userId, id);
  }

  /** Creates an organization that the person owns, and returns its id. Call inside a transaction. */
  async insertOwned(
    transaction: Database,
    name: string,
    { userId, email, clientAddress }: Invited,
  ): Promise<string> {
    const owner = await insertOrganization(transaction, { name, region: this.#parts.region });
    if (owner === undefined) throw new Error('a new organization was mistaken for the first one');
    const { organizationId } = owner;
    const created_at = Date.now();
    await transaction
      .insertInto('memberships')
      .values({ organization_id: organizationId, user_id: userId, role: 'owner', created_at })
      .execute();
    const by: AuditActor = { type: 'user', id: userId, address: clientAddress };
    await this.#parts.audit.write(transaction, {
      organizationId,
      by,
      notes: [
        { event: 'organization.created', data: { name } },
        { event: 'member.joined', data: { user_id: userId, email, role: 'owner', invitation_id: null } },
      ],
    });
    return organizationId;
  }

  /** Returns the organization with the person's role. Throws `not_found` for a non-member. */
  async get(userId: string, organizationId: string): Promise<OrganizationRecord> {
    const row = await this.#parts.db
      .selectFrom('memberships')
      .innerJoin('organizations', 'organizations.id', 'memberships.organization_id')
      .select(['organizations.id', 'name', 'region', 'role', 'organizations.created_at'])
      .where('user_id', '=', userId)
      .where('organizations.id', '=', organizationId)
      .executeTakeFirst();
    if (row === undefined) throw noOrganization();
    return { ...row, created_at: new Date(row.created_at).toISOString() };
  }

  async rename(organizationId: string, name: string, by: AuditActor): Promise<void> {
    const { db, audit } = this.#parts;
    await db.transaction().execute(async (transaction) => {
      const { numUpdatedRows } = await transaction
        .updateTable('organizations')
        .set({ name })
        .where('id', '=', organizationId)
        .where('name', '!=', name)
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return;
      const notes = [{ event: 'organization.renamed' as const, data: { name } }];
      await audit.write(transaction, { organizationId, by, notes });
    });
  }

  /**
   * Returns a person with their organizations and the teams that they manage there, or undefined for an unknown person.
   */
  async findAccount(userId: string): Promise<AccountRecord | undefined> {
    const { db } = this.#parts;
    const user = await db
      .selectFrom('users')
      .select(['id', 'email', 'name', 'created_at'])
      .where('id', '=', userId)
      .executeTakeFirst();
    if (user === undefined) return undefined;
    const organizations = await listOrganizations(db, userId);
    const teams = await listTeams(db, userId);
    return {
      user: { ...user, created_at: new Date(user.created_at).toISOString() },
      is_operator: organizations.some(({ role, is_first }) => role === 'owner' && is_first === true),
      organizations: organizations.map(({ id: organizationId, name, region, role }) => ({
        id: organizationId,
        name,
        region,
        role,
        teams: teams
          .filter((team) => team.organization_id === organizationId)
          .map((team) => ({ id: team.id, name: team.name })),
      })),
    };
  }
}

interface ListedOrganization {
  id: string;
  name: string;
  region: string;
  role: Role;
  is_first: boolean | null;
}

function listOrganizations(db: Database, userId: string): Promise<ListedOrganization[]> {
  return db
    .selectFrom('memberships')
    .innerJoin('organizations', 'organizations.id', 'memberships.organization_id')
    .select(['organizations.id', 'name', 'region', 'role', 'is_first'])
    .where('user_id', '=', userId)
    .orderBy('organizations.created_at')
    .orderBy('organizations.id')
    .execute();
}

/** Lists all teams of the organizations that the person owns, and the person's own teams in the others. */
function listTeams(
  db: Database,
  userId: string,
): Promise<{ id: string; name: string; organization_id: string }[]> {
  return db
    .selectFrom('teams')
    .innerJoin('memberships', 'memberships.organization_id', 'teams.organization_id')
    .leftJoin('team_members', (join) =>
      join
        .onRef('team_members.team_id', '=', 'teams.id')
        .onRef('team_members.user_id', '=', 'memberships.user_id'),
    )
    .select(['teams.id', 'name', 'teams.organization_id'])
    .where('memberships.user_id', '=', userId)
    .where((where) => where.or([where('role', '=', 'owner'), where('team_members.user_id', 'is not', null)]))
    .orderBy('teams.created_at')
    .orderBy('teams.id')
    .execute();
}

async function countOwned(db: Database, userId: string): Promise<number> {
  const { count } = await db
    .selectFrom('memberships')
    .select(({ fn }) => fn.countAll<number>().as('count'))
    .where('user_id', '=', userId)
    .where('role', '=', 'owner')
    .executeTakeFirstOrThrow();
  return count;
}
