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
  const request = {
    method: 'GET' as const,
    path: `${path}/audit`,
    query: buildQuery({ follow: follow === true ? 'true' : undefined, after }),
    idempotent: true,
    signal,
  };
  const stallMs = follow === true ? Math.max(FOLLOW_STALL_MS, transport.timeoutMs) : undefined;
  const stream = await transport.callStream({ ...request, stallMs });
  for await (const line of readLines(stream, MAX_LINE_LENGTH)) {
    if (line !== '') yield parseLine(line, labelOf(request));
  }
}

/** Fetches the audit head of the sandbox at `path`. */
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

function parseLine(line: string, label: string): AuditEntry {
  try {
    return parseAuditEntry(JSON.parse(line));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new CoppiceError(`${label}: a line is not an audit entry (${why})`, {
      status: 200,
      code: 'invalid_response',
      cause,
    });
  }
}
