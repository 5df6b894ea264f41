/**
 * The secrets that key the audit logs of organizations. The newest keys the next entry. None is ever removed, because
 * the entries that it keyed stay.
 */
import { AppError } from '@coppice/contract';
import type { Database } from '../../db/database.ts';
import type { SecretBox, SecretContext } from '../../secrets/secret-box.ts';
import {
  ifReadable,
  newAuditSecret,
  OpenedSecrets,
  timeAfter,
  type AuditSecret,
  type AuditSecretInfo,
} from '../audit-secrets.ts';

const PREFIX = 'cos_';

export class OrganizationSecrets {
  readonly #box: SecretBox;
  readonly #opened: OpenedSecrets;

  constructor(box: SecretBox) {
    this.#box = box;
    this.#opened = new OpenedSecrets(box, { remedy: 'put that one back (master.key)' });
  }

  /** Returns the newest secret that can be read. Adds none. Undefined: there is none, or the newest is unreadable. */
  async findNewest(db: Database, organizationId: string): Promise<AuditSecret | undefined> {
    const [newest] = await this.list(db, organizationId, 1);
    return newest === undefined ? undefined : ifReadable(this.get(db, organizationId, newest.id));
  }

  /** Throws `not_found` for a secret of another organization, `secret_unreadable` without its master key. */
  async get(db: Database, organizationId: string, id: string): Promise<AuditSecret> {
    const row = await db
      .selectFrom('organization_audit_secrets')
      .select('sealed_secret')
      .where('organization_id', '=', organizationId)
      .where('id', '=', id)
      .executeTakeFirst();
    if (row === undefined) throw new AppError('not_found', 'the organization has no such secret');
    const context = bindOrganizationAuditSecret(organizationId, id);
    return this.#opened.find(id) ?? this.#opened.open(id, row.sealed_secret, context);
  }

  /** Lists an organization's secrets, newest first. */
  async list(db: Database, organizationId: string, limit?: number): Promise<AuditSecretInfo[]> {
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
  async add(transaction: Database, organizationId: string): Promise<AuditSecret> {
    const [newest] = await this.list(transaction, organizationId, 1);
    const { id, secret } = newAuditSecret(PREFIX);
    await transaction
      .insertInto('organization_audit_secrets')
      .values({
        id,
        organization_id: organizationId,
        sealed_secret: this.#box.seal(secret, bindOrganizationAuditSecret(organizationId, id)),
        created_at: timeAfter(newest?.createdAt),
      })
      .execute();
    return { id, secret };
  }
}

/** The context that a secret is bound to when sealed. */
export function bindOrganizationAuditSecret(organizationId: string, id: string): SecretContext {
  return { organizationId, purpose: 'organization audit secret', name: id };
}
