/** Verifies an audit log of an organization offline with its secrets: see verify-chain.ts. */
import type { AuditHead } from './audit-entry.ts';
import type { AuditVerdict } from './audit-verdict.ts';
import type { OrganizationAuditEntry } from './organization-audit-entry.ts';
import { verifyChain, type ChainForm } from './verify-chain.ts';

/** Options of {@link verifyOrganizationAudit}. */
export interface VerifyOrganizationAuditOptions {
  /** An earlier head, kept where it is trusted. It detects a log that was cut off before it. */
  head?: AuditHead | undefined;
  /** Id of the organization whose log it must be. Default: that of the first entry. */
  organizationId?: string | undefined;
}

const FORM: ChainForm<OrganizationAuditEntry> = {
  subjectOf: ({ organizationId }) => organizationId,
  otherSubject: 'other_organization',
  seed: 'coppice-organization-audit-v1:',
  toHashed: ({ seq, ts, organizationId, auditKeyId, event, actor, data }) => ({
    seq,
    ts,
    organization_id: organizationId,
    audit_key_id: auditKeyId,
    event,
    actor,
    data,
  }),
  keyIdOf: ({ auditKeyId }) => auditKeyId,
  isLast: () => false,
};

/**
 * Verifies a whole log of an organization, or a prefix of it. `secrets` has the secrets that key it, by id: one, and
 * another for each rotation. It makes no request. Resolves with a verdict for any log; rejects with `TypeError` when a
 * secret is empty, and with the error of `entries` if reading them fails.
 *
 * @example
 * const verdict = await verifyOrganizationAudit(
 *   client.organization.audit(),
 *   { ask0123456789abcdef0123: organizationSecret },
 *   { head: await client.organization.auditHead() },
 * );
 * if (!verdict.valid) console.error(verdict.message);
 */
export function verifyOrganizationAudit(
  entries: Iterable<OrganizationAuditEntry> | AsyncIterable<OrganizationAuditEntry>,
  secrets: Readonly<Record<string, string>>,
  { head, organizationId }: VerifyOrganizationAuditOptions = {},
): Promise<AuditVerdict> {
  const byId = new Map(Object.entries(secrets));
  return verifyChain(entries, { form: FORM, secrets: byId, head, subject: organizationId });
}
