import { readNumber, readObject, readString } from './transport/wire.ts';

/** One entry of a sandbox's audit log. */
export interface AuditEntry {
  /** Position in the chain, from 1. */
  seq: number;
  /** ISO 8601 UTC. */
  ts: string;
  sandboxId: string;
  /** For example `exec.start`. */
  event: string;
  /** As the service wrote it, with its own names of fields: it is what was hashed. */
  data: Record<string, unknown>;
  /** `sha256:` and the chained hash, in hexadecimal digits. */
  hmac: string;
}

/** The last entry of an audit log. */
export interface AuditHead {
  /** 0 when there is no entry yet. */
  seq: number;
  /** Null when there is no entry yet. */
  hmac: string | null;
}

const FIELDS = new Set(['seq', 'ts', 'sandbox_id', 'event', 'data', 'hmac']);

/**
 * Reads one line of an audit log. A field that no entry has is refused: it would not be covered by the hash.
 *
 * @example
 * const entries = readFileSync('audit.ndjson', 'utf8').trimEnd().split('\n').map(parseAuditLine);
 */
export function parseAuditLine(line: string): AuditEntry {
  return parseAuditEntry(JSON.parse(line));
}

export function parseAuditEntry(value: unknown): AuditEntry {
  const entry = readObject(value, 'the audit entry');
  const unknown = Object.keys(entry).find((field) => !FIELDS.has(field));
  if (unknown !== undefined) throw new TypeError(`an audit entry has no field "${unknown}"`);
  return {
    seq: readNumber(entry, 'seq'),
    ts: readString(entry, 'ts'),
    sandboxId: readString(entry, 'sandbox_id'),
    event: readString(entry, 'event'),
    data: readObject(entry['data'], 'data'),
    hmac: readString(entry, 'hmac'),
  };
}

export function parseAuditHead(value: unknown): AuditHead {
  const head = readObject(value, 'the audit head');
  return { seq: readNumber(head, 'seq'), hmac: head['hmac'] === null ? null : readString(head, 'hmac') };
}
