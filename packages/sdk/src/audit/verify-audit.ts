/** Verifies an audit log of a sandbox offline with the team's secret: see verify-chain.ts. */
import type { AuditEntry, AuditHead } from './audit-entry.ts';
import type { AuditVerdict } from './audit-verdict.ts';
import { verifyChain, type ChainForm } from './verify-chain.ts';

/** Options of {@link verifyAudit}. */
export interface VerifyAuditOptions {
  /**
   * Head from an earlier `sandbox.auditHead()`, kept where it is trusted. It detects a log that was cut off before it.
   */
  head?: AuditHead | undefined;
  /** Id of the sandbox whose log it must be. Default: that of the first entry. */
  sandboxId?: string | undefined;
}

const LAST_EVENTS = new Set(['sandbox.destroyed', 'sandbox.failed']);

/** One secret keys a whole log, so that its entries do not name it. */
const ONLY = '';

const FORM: ChainForm<AuditEntry> = {
  subjectOf: ({ sandboxId }) => sandboxId,
  otherSubject: 'other_sandbox',
  seed: 'coppice-audit-v1:',
  toHashed: ({ seq, ts, sandboxId, event, data }) => ({ seq, ts, sandbox_id: sandboxId, event, data }),
  keyIdOf: () => ONLY,
  isLast: (event) => LAST_EVENTS.has(event),
};

/**
 * Verifies a whole log, or a prefix of it, with the team's secret. It makes no request. Resolves with a verdict for any
 * log; rejects with `TypeError` when the secret is empty, and with the error of `entries` if reading them fails.
 *
 * @example
 * const verdict = await verifyAudit(sandbox.audit(), teamSecret, { head: await sandbox.auditHead() });
 * if (!verdict.valid) console.error(verdict.message);
 */
export function verifyAudit(
  entries: Iterable<AuditEntry> | AsyncIterable<AuditEntry>,
  secret: string,
  { head, sandboxId }: VerifyAuditOptions = {},
): Promise<AuditVerdict> {
  return verifyChain(entries, { form: FORM, secrets: new Map([[ONLY, secret]]), head, subject: sandboxId });
}
