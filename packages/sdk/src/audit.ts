import { parseAuditEntry, parseAuditHead, type AuditEntry, type AuditHead } from './audit-entry.ts';
import type { CallOptions } from './transport/client-options.ts';
import { CoppiceError } from './transport/errors.ts';
import { readLines } from './streams/event-stream.ts';
import { labelOf, type Transport } from './transport/transport.ts';
import { buildQuery } from './transport/wire.ts';

/** How to read an audit log. */
export interface AuditOptions extends CallOptions {
  /** Goes on with entries as they come, until the sandbox has ended. */
  follow?: boolean | undefined;
  /** Begins behind the entry of this `seq`. */
  after?: number | undefined;
}

/** In characters: a command, which an entry holds, is at most 1 MiB, and more when it is escaped. */
const MAX_LINE_LENGTH = 16 << 20;
/** While nothing happens the service sends a sign of life every 15 s. */
const FOLLOW_STALL_MS = 60_000;

/** `path` is that of the sandbox. */
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
    throw new CoppiceError(`${label}: a line is no audit entry (${why})`, {
      status: 200,
      code: 'invalid_response',
      cause,
    });
  }
}
