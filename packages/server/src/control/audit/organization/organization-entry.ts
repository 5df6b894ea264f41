/** Builds and formats the entries of an organization's audit log. No I/O. */
import { createHmac } from 'node:crypto';
import {
  buildOrganizationAuditSeed,
  buildOrganizationAuditText,
  canonicalize,
  type AuditActor,
  type OrganizationAuditData,
  type OrganizationAuditEntry,
  type OrganizationAuditEvent,
} from '@coppice/contract';
import type { Secret } from '../../../lib/secret.ts';
import type { OrganizationAuditRow } from './organization-audit-tables.ts';

/** An event to write to an organization's log. */
export type OrganizationNote = {
  [E in OrganizationAuditEvent]: { event: E; data: OrganizationAuditData<E> };
}[OrganizationAuditEvent];

/** The last entry of a chain. */
export type OrganizationHead = Pick<OrganizationAuditRow, 'seq' | 'hmac' | 'ts'>;

export interface NextEntry {
  organizationId: string;
  key: { id: string; secret: Secret };
  head: OrganizationHead | undefined;
  actor: AuditActor;
  note: OrganizationNote;
  nowMs: number;
}

export function buildEntry({
  organizationId,
  key,
  head,
  actor,
  note,
  nowMs,
}: NextEntry): OrganizationAuditRow {
  const seq = (head?.seq ?? 0) + 1;
  // The times of a chain must not decrease, even if the clock was set back.
  const ts = Math.max(Math.round(nowMs), head?.ts ?? 0);
  const { event, data } = note;
  const text = buildOrganizationAuditText(head?.hmac ?? buildOrganizationAuditSeed(organizationId), {
    seq,
    ts: new Date(ts).toISOString(),
    organization_id: organizationId,
    audit_key_id: key.id,
    event,
    actor,
    data,
  });
  const digest = createHmac('sha256', key.secret.reveal()).update(text).digest('hex');
  return {
    organization_id: organizationId,
    seq,
    ts,
    audit_key_id: key.id,
    event,
    actor: canonicalize(actor),
    data: canonicalize(data),
    hmac: `sha256:${digest}`,
  };
}

/** Formats an entry as it is sent. `actor` and `data` stay byte for byte as they were hashed. */
export function formatOrganizationEntry(row: OrganizationAuditRow): string {
  const { seq, ts, organization_id, audit_key_id, event, actor, data, hmac } = row;
  const head = {
    seq,
    ts: new Date(ts).toISOString(),
    organization_id,
    audit_key_id,
    event,
  } satisfies Partial<OrganizationAuditEntry>;
  return `${JSON.stringify(head).slice(0, -1)},"actor":${actor},"data":${data},"hmac":"${hmac}"}\n`;
}
