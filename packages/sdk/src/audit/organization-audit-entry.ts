import { readEntry } from './audit-entry.ts';
import { readNumber, readObject, readString } from '../transport/wire.ts';

/** One entry of the audit log of an organization. */
export interface OrganizationAuditEntry {
  /** Position in the chain, from 1. */
  seq: number;
  /** Time of the event, ISO 8601 UTC. */
  ts: string;
  /** Id of the organization. */
  organizationId: string;
  /** Id of the secret that keys the entry. */
  auditKeyId: string;
  /** Name of the event, for example `api_key.created`. */
  event: string;
  /**
   * The actor that caused the event: `type`, `id`, `address` and, for a person with the key of a session, `session_key`, as the
   * service sends them, because the hash covers them.
   */
  actor: Record<string, unknown>;
  /** Fields of the event, with the names that the service uses (snake_case). */
  data: Record<string, unknown>;
  /** Chained hash of the entry: `sha256:` and 64 hexadecimal digits. */
  hmac: string;
}

const FIELDS = new Set(['seq', 'ts', 'organization_id', 'audit_key_id', 'event', 'actor', 'data', 'hmac']);

/**
 * Parses one line of the audit log of an organization. Throws `SyntaxError` for text that is not JSON, and `TypeError`
 * for a missing field, a field of the wrong type or an unknown field; the hash does not cover unknown fields.
 *
 * @example
 * const entries = readFileSync('organization.ndjson', 'utf8').trimEnd().split('\n').map(parseOrganizationAuditLine);
 */
export function parseOrganizationAuditLine(line: string): OrganizationAuditEntry {
  return parseOrganizationAuditEntry(JSON.parse(line));
}

/** Parses an entry from its wire form. Throws `TypeError` as {@link parseOrganizationAuditLine} does. */
export function parseOrganizationAuditEntry(value: unknown): OrganizationAuditEntry {
  const entry = readEntry(value, FIELDS);
  return {
    seq: readNumber(entry, 'seq'),
    ts: readString(entry, 'ts'),
    organizationId: readString(entry, 'organization_id'),
    auditKeyId: readString(entry, 'audit_key_id'),
    event: readString(entry, 'event'),
    actor: readObject(entry['actor'], 'actor'),
    data: readObject(entry['data'], 'data'),
    hmac: readString(entry, 'hmac'),
  };
}
