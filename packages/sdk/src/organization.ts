import { parseAuditHead, type AuditHead } from './audit/audit-entry.ts';
import {
  parseOrganizationAuditEntry,
  type OrganizationAuditEntry,
} from './audit/organization-audit-entry.ts';
import { readLines } from './streams/event-stream.ts';
import type { CallOptions } from './transport/client-options.ts';
import { CoppiceError } from './transport/errors.ts';
import { labelOf, type Transport } from './transport/transport.ts';
import { buildQuery } from './transport/wire.ts';

/** Options of `client.organization.audit()`. */
export interface OrganizationAuditOptions extends CallOptions {
  /** Starts after the entry with this `seq`. Default: starts with the first entry. */
  after?: number | undefined;
  /** Yields only entries of this event, for example `api_key.created`. They cannot be verified. */
  event?: string | undefined;
  /** Yields only entries that the person or API key with this id caused. They cannot be verified. */
  actor?: string | undefined;
}

const PATH = '/v1/organization/audit';
/** In characters. An entry has some hundred. */
const MAX_LINE_LENGTH = 1 << 20;

/**
 * Your organization. Available as `client.organization`. Calls reject with {@link CoppiceError}; with code `forbidden`
 * for a key with the scope `read` or limited to its team.
 */
export class Organization {
  readonly #transport: Transport;

  /** Called by {@link Coppice} only. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Yields the entries of the audit log of the organization: changes of keys, members, teams, secrets, webhooks,
   * registries, limits and credit, and sign-ins. `verifyOrganizationAudit` verifies them.
   *
   * @example
   * for await (const { ts, event, actor } of client.organization.audit()) console.log(ts, event, actor);
   */
  audit(options: OrganizationAuditOptions = {}): AsyncGenerator<OrganizationAuditEntry, void, undefined> {
    return readLog(this.#transport, options);
  }

  /**
   * Fetches position and hash of the last entry. Keep them elsewhere: they reveal a log whose end was cut off.
   *
   * @example
   * const head = await client.organization.auditHead();
   */
  async auditHead({ signal }: CallOptions = {}): Promise<AuditHead> {
    const answer = await this.#transport.callJson(
      { method: 'GET', path: PATH, query: '?head=true', idempotent: true, signal },
      parseAuditHead,
    );
    return answer.value;
  }
}

async function* readLog(
  transport: Transport,
  { after, event, actor, signal }: OrganizationAuditOptions,
): AsyncGenerator<OrganizationAuditEntry, void, undefined> {
  const request = {
    method: 'GET' as const,
    path: PATH,
    query: buildQuery({ after, event, actor }),
    idempotent: true,
    signal,
  };
  const stream = await transport.callStream(request);
  for await (const line of readLines(stream, MAX_LINE_LENGTH))
    if (line !== '') yield parseLine(line, labelOf(request));
}

function parseLine(line: string, label: string): OrganizationAuditEntry {
  try {
    return parseOrganizationAuditEntry(JSON.parse(line));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new CoppiceError(`${label}: a line is not an audit entry (${why})`, {
      status: 200,
      code: 'invalid_response',
      cause,
    });
  }
}
