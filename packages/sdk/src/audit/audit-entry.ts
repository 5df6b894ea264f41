import { readNumber, readObject, readString } from '../transport/wire.ts';

/** One entry of the audit log of a sandbox. */
export interface AuditEntry {
  /** Position in the chain, from 1. */
  seq: number;
  /** Time of the event, ISO 8601 UTC. */
  ts: string;
  /** Id of the sandbox. */
  sandboxId: string;
  /** Name of the event, for example `exec.start`. */
  event: string;
  /**
   * Fields of the event, with the names that the service uses (snake_case), because the hash covers them as written.
   */
  data: Record<string, unknown>;
  /** Chained hash of the entry: `sha256:` and 64 hexadecimal digits. */
  hmac: string;
}

/** Position and hash of the last entry of an audit log. */
export interface AuditHead {
  /** Position of the last entry. 0 when there is no entry yet. */
  seq: number;
  /** Hash of the last entry. Null when there is no entry yet. */
  hmac: string | null;
}

const FIELDS = new Set(['seq', 'ts', 'sandbox_id', 'event', 'data', 'hmac']);

/**
 * Parses one line of an audit log. Throws `SyntaxError` for text that is not JSON, and `TypeError` for a missing field,
 * a field of the wrong type or an unknown field; the hash does not cover unknown fields.
 *
 * @example
 * const entries = readFileSync('audit.ndjson', 'utf8').trimEnd().split('\n').map(parseAuditLine);
 */
export function parseAuditLine(line: string): AuditEntry {
  return parseAuditEntry(JSON.parse(line));
}

/** Parses an audit entry from its wire form. Throws `TypeError` as {@link parseAuditLine} does. */
export function parseAuditEntry(value: unknown): AuditEntry {
  const entry = readEntry(value, FIELDS);
  return {
    seq: readNumber(entry, 'seq'),
    ts: readString(entry, 'ts'),
    sandboxId: readString(entry, 'sandbox_id'),
    event: readString(entry, 'event'),
    data: readObject(entry['data'], 'data'),
    hmac: readString(entry, 'hmac'),
  };
}

/** Parses an audit head from its wire form. Throws `TypeError` for another shape. */
export function parseAuditHead(value: unknown): AuditHead {
  const head = readObject(value, 'the audit head');
  return { seq: readNumber(head, 'seq'), hmac: head['hmac'] === null ? null : readString(head, 'hmac') };
}

/** Reads an object that may have only these fields. Throws `TypeError` otherwise. */
export function readEntry(value: unknown, fields: ReadonlySet<string>): Record<string, unknown> {
  const entry = readObject(value, 'the audit entry');
  const unknown = Object.keys(entry).find((field) => !fields.has(field));
  if (unknown !== undefined) throw new TypeError(`an audit entry has no field "${unknown}"`);
  return entry;
}
