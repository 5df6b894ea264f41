/**
 * The secrets that key the audit logs of organizations. The newest keys the next entry. None is ever removed, because
 * the entries that it keyed stay.
 */
import { randomBytes } from 'node:crypto';
import { AppError } from '@coppice/contract';
import { newId } from '../../../lib/new-id.ts';
import { Secret } from '../../../lib/secret.ts';
import type { Database } from '../../db/database.ts';
import type { SecretBox, SecretContext } from '../../secrets/secret-box.ts';
import { isUnreadable } from '../write-errors.ts';

const SECRET_BYTES = 32;
const PREFIX = 'cos_';
/** Limit of opened secrets in memory. */
const MAX_CACHED = 10_000;

export interface OrganizationSecret {
  /** `ask…`; the `audit_key_id` of entries refers to it. */
  id: string;
  secret: Secret;
}

export interface OrganizationSecretInfo {
  id: string;
  /** Unix milliseconds. */
  createdAt: number;
}

export class OrganizationSecrets {
  readonly #box: SecretBox;
  readonly #opened = new Map<string, Secret>();

  constructor(box: SecretBox) {
    this.#box = box;
  }

  /** Returns the newest secret that can be read. Adds none. Undefined: there is none, or the newest is unreadable. */
  async findNewest(db: Database, organizationId: string): Promise<OrganizationSecret | undefined> {
    const [newest] = await this.list(db, organizationId, 1);
    if (newest === undefined) return undefined;
    try {
      return await this.get(db, organizationId, newest.id);
    } catch (error) {
      if (isUnreadable(error)) return undefined;
      throw error;
    }
  }

  /** Throws `not_found` for a secret of another organization, `secret_unreadable` without its master key. */
  async get(db: Database, organizationId: string, id: string): Promise<OrganizationSecret> {
    const row = await db
      .selectFrom('organization_audit_secrets')
      .select('sealed_secret')
      .where('organization_id', '=', organizationId)
      .where('id', '=', id)
      .executeTakeFirst();
    if (row === undefined) throw new AppError('not_found', 'the organization has no such secret');
    const cached = this.#opened.get(id);
    if (cached !== undefined) return { id, secret: cached };
    return this.#keep(id, this.#open(row.sealed_secret, bindOrganizationAuditSecret(organizationId, id)));
  }

  /** Lists an organization's secrets, newest first. */
  async list(db: Database, organizationId: string, limit?: number): Promise<OrganizationSecretInfo[]> {
    const query = db
      .selectFrom('organization_audit_secrets')
      .select(['id', 'created_at'])
      .where('organization_id', '=', organizationId)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc');
    const rows = await (limit === undefined ? query : query.limit(limit)).execute();
    return rows.map(({ id, created_at }) => ({ id, createdAt: created_at }));
  }

  /** Adds a newest secret. Call only while the log is locked: see organization-audit.ts. */
  async add(transaction: Database, organizationId: string): Promise<OrganizationSecret> {
    const [newest] = await this.list(transaction, organizationId, 1);
    const id = newId('ask');
    const secret = new Secret(`${PREFIX}${randomBytes(SECRET_BYTES).toString('base64url')}`);
    await transaction
      .insertInto('organization_audit_secrets')
      .values({
        id,
        organization_id: organizationId,
        sealed_secret: this.#box.seal(secret, bindOrganizationAuditSecret(organizationId, id)),
        // The newest secret is the one with the latest time, even if the clock was set back.
        created_at: Math.max(Date.now(), (newest?.createdAt ?? 0) + 1),
      })
      .execute();
    return { id, secret };
  }

  #open(sealed: Buffer, context: SecretContext): Secret {
    try {
      return this.#box.open(sealed, context);
    } catch (cause) {
      throw new AppError(
        'secret_unreadable',
        `the ${context.purpose} ${context.name} was sealed with another master key: put that one back (master.key)`,
        { cause },
      );
    }
  }

  #keep(id: string, secret: Secret): OrganizationSecret {
    if (this.#opened.size >= MAX_CACHED) this.#opened.clear();
    this.#opened.set(id, secret);
    return { id, secret };
  }
}

/** The context that a secret is bound to when sealed. */
export function bindOrganizationAuditSecret(organizationId: string, id: string): SecretContext {
  return { organizationId, purpose: 'organization audit secret', name: id };
}
