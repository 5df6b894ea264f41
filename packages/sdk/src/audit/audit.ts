import { parseAuditEntry, parseAuditHead, type AuditEntry, type AuditHead } from './audit-entry.ts';
import type { CallOptions } from '../transport/client-options.ts';
import { CoppiceError } from '../transport/errors.ts';
import { readLines } from '../streams/event-stream.ts';
import { labelOf, type Transport } from '../transport/transport.ts';
import { buildQuery } from '../transport/wire.ts';

/** Options of `sandbox.audit()`. */
export interface AuditOptions extends CallOptions {
  /** Yields new entries as they are written, until the sandbox has ended. Default false. */
  follow?: boolean | undefined;
  /** Starts after the entry with this `seq`. Default: starts with the first entry. */
  after?: number | undefined;
}

/** In characters. An entry holds a command of at most 1 MiB, which JSON escapes make longer. */
const MAX_LINE_LENGTH = 16 << 20;
/** The service sends an empty line every 15 s while there are no entries. */
const FOLLOW_STALL_MS = 60_000;

/**
 * Yields the audit entries of the sandbox at `path`. Throws {@link CoppiceError} with code `invalid_response` for a
 * line that is not an audit entry.
 */
export async function* readAudit(
  transport: Transport,
  path: string,
  { follow, after, signal }: AuditOptions,
): AsyncGenerator<AuditEntry, void, undefined> {
  const query = buildQuery({ follow: follow === true ? 'true' : undefined, after });
  const stallMs = follow === true ? Math.max(FOLLOW_STALL_MS, transport.timeoutMs) : undefined;
  yield* readLog(
    transport,
    { path, query, signal, stallMs, maxLineLength: MAX_LINE_LENGTH },
    parseAuditEntry,
  );
}

/** How an audit log is read. */
export interface LogRequest extends CallOptions {
  /** Path of the sandbox or organization. */
  path: string;
  query: string;
  /** Longest silence. Default: none. */
  stallMs?: number | undefined;
  /** In characters. */
  maxLineLength: number;
}

/**
 * Yields the entries of an audit log. Throws {@link CoppiceError} with code `invalid_response` for a line that `parse`
 * refuses.
 */
export async function* readLog<Entry>(
  transport: Transport,
  { path, query, signal, stallMs, maxLineLength }: LogRequest,
  parse: (value: unknown) => Entry,
): AsyncGenerator<Entry, void, undefined> {
  const request = { method: 'GET', path: `${path}/audit`, query, idempotent: true, signal } as const;
  const stream = await transport.callStream({ ...request, stallMs });
  for await (const line of readLines(stream, maxLineLength))
    if (line !== '') yield parseLine(line, labelOf(request), parse);
}

/** Fetches the head of the audit log of the sandbox or organization at `path`. */
export async function fetchAuditHead(
  transport: Transport,
  path: string,
  { signal }: CallOptions,
): Promise<AuditHead> {
  const answer = await transport.callJson(
    { method: 'GET', path: `${path}/audit`, query: '?head=true', idempotent: true, signal },
    parseAuditHead,
  );
  return answer.value;
}

function parseLine<Entry>(line: string, label: string, parse: (value: unknown) => Entry): Entry {
  try {
    return parse(JSON.parse(line));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new CoppiceError(`${label}: a line is not an audit entry (${why})`, {
      status: 200,
      code: 'invalid_response',
      cause,
    });
  }
}
