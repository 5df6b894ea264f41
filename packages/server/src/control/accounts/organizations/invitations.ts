/** Invitations to an organization: a token, shown once, that makes one person a member. */
import {
  AppError,
  type AuditActor,
  type CreatedInvitation,
  type CreateInvitationRequest,
  type InvitationRecord,
  type Role,
} from '@coppice/contract';
import type { Selectable } from 'kysely';
import { newId } from '../../../lib/new-id.ts';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import type { Database } from '../../db/database.ts';
import type { InvitationTable } from '../account-tables.ts';
import { generateInvitation, hashInvitation } from './invitation-token.ts';

const MAX_OPEN = 1000;

export interface Invited {
  userId: string;
  email: string;
  clientAddress: string;
}

export interface InvitationsParts {
  db: Database;
  audit: OrganizationAudit;
  now: () => number;
}

export class Invitations {
  readonly #db: Database;
  readonly #audit: OrganizationAudit;
  readonly #now: () => number;

  constructor({ db, audit, now }: InvitationsParts) {
    this.#db = db;
    this.#audit = audit;
    this.#now = now;
  }

  async create(
    organizationId: string,
    { role, email, expires_in }: CreateInvitationRequest,
    by: AuditActor,
  ): Promise<CreatedInvitation> {
    if ((await this.list(organizationId)).length >= MAX_OPEN)
      throw new AppError('rate_limited', `${MAX_OPEN} invitations are open, which is the limit; revoke some`);
    const invitation = generateInvitation();
    const now = this.#now();
    const row = {
      id: newId('inv'),
      organization_id: organizationId,
      email: email ?? null,
      role,
      sha256: hashInvitation(invitation),
      created_at: now,
      expires_at: now + expires_in * 1000,
      accepted_at: null,
    };
    const record = toRecord(row);
    const { created_at: _, ...data } = record;
    await this.#db.transaction().execute(async (transaction) => {
      await transaction.insertInto('invitations').values(row).execute();
      const notes = [{ event: 'invitation.created' as const, data }];
      await this.#audit.write(transaction, { organizationId, by, notes });
    });
    return { ...record, invitation };
  }

  /** Lists the invitations that can still be accepted, newest first. */
  async list(organizationId: string): Promise<InvitationRecord[]> {
    const rows = await this.#db
      .selectFrom('invitations')
      .selectAll()
      .where('organization_id', '=', organizationId)
      .where('accepted_at', 'is', null)
      .where('expires_at', '>', this.#now())
      .orderBy('created_at', 'desc')
      .orderBy('id')
      .execute();
    return rows.map(toRecord);
  }

  /** Expires an invitation. Its row stays, so that the next start does not recreate a configured one. */
  async revoke(organizationId: string, id: string, by: AuditActor): Promise<void> {
    const now = this.#now();
    await this.#db.transaction().execute(async (transaction) => {
      const { numUpdatedRows } = await transaction
        .updateTable('invitations')
        .set({ expires_at: now })
        .where('organization_id', '=', organizationId)
        .where('id', '=', id)
        .where('accepted_at', 'is', null)
        .where('expires_at', '>', now)
        .executeTakeFirst();
      if (numUpdatedRows === 0n)
        throw new AppError('not_found', 'there is no such invitation that could still be accepted');
      const notes = [{ event: 'invitation.revoked' as const, data: { id } }];
      await this.#audit.write(transaction, { organizationId, by, notes });
    });
  }

  /** Throws `invalid_request` unless `email` can accept the invitation. */
  async assertOpen(db: Database, invitation: string, email: string): Promise<void> {
    await this.#findOpen(db, invitation, email);
  }

  async accept(invitation: string, invited: Invited): Promise<void> {
    await this.#db.transaction().execute((transaction) => this.acceptIn(transaction, invitation, invited));
  }

  /** Accepts within `transaction`. Of two concurrent accepts, one throws `invalid_request`. */
  async acceptIn(
    transaction: Database,
    invitation: string,
    { userId, email, clientAddress }: Invited,
  ): Promise<void> {
    const {
      id,
      organization_id: organizationId,
      role,
    } = await this.#findOpen(transaction, invitation, email);
    const now = this.#now();
    const { numUpdatedRows } = await transaction
      .updateTable('invitations')
      .set({ accepted_at: now })
      .where('id', '=', id)
      .where('accepted_at', 'is', null)
      .executeTakeFirst();
    if (numUpdatedRows === 0n) throw unusable('it was accepted before');
    await addMember(transaction, { organizationId, userId, role });
    const by: AuditActor = { type: 'user', id: userId, address: clientAddress };
    const data = { user_id: userId, email, role, invitation_id: id };
    await this.#audit.write(transaction, {
      organizationId,
      by,
      notes: [{ event: 'member.joined', data }],
    });
  }

  async #findOpen(db: Database, invitation: string, email: string): Promise<Selectable<InvitationTable>> {
    const row = await db
      .selectFrom('invitations')
      .selectAll()
      .where('sha256', '=', hashInvitation(invitation))
      .executeTakeFirst();
    if (row === undefined) throw unusable('there is no invitation with this text');
    if (row.accepted_at !== null) throw unusable('it was accepted before');
    if ((row.expires_at ?? Infinity) <= this.#now()) throw unusable('it has expired, or was revoked');
    if (row.email !== null && row.email !== email) throw unusable('it is for another e-mail address');
    return row;
  }
}

interface NewMember {
  organizationId: string;
  userId: string;
  role: Role;
}

async function addMember(db: Database, { organizationId, userId, role }: NewMember): Promise<void> {
  const added = await db
    .insertInto('memberships')
    .values({ organization_id: organizationId, user_id: userId, role, created_at: Date.now() })
    .onConflict((conflict) => conflict.columns(['organization_id', 'user_id']).doNothing())
    .executeTakeFirst();
  if (added.numInsertedOrUpdatedRows !== 1n)
    throw new AppError('already_exists', 'you are a member of the organization already');
}

function unusable(why: string): AppError {
  return new AppError('invalid_request', `invitation: cannot be used: ${why}; ask for another`);
}

function toRecord({
  id,
  role,
  email,
  created_at,
  expires_at,
}: Selectable<InvitationTable>): InvitationRecord {
  return {
    id,
    role,
    email,
    created_at: new Date(created_at).toISOString(),
    expires_at: new Date(expires_at ?? 0).toISOString(),
  };
}
