import { fetchAuditHead, readLog } from './audit/audit.ts';
import type { AuditHead } from './audit/audit-entry.ts';
import {
  parseOrganizationAuditEntry,
  type OrganizationAuditEntry,
} from './audit/organization-audit-entry.ts';
import type { CallOptions } from './transport/client-options.ts';
import type { Transport } from './transport/transport.ts';
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

const PATH = '/v1/organization';
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
    const { after, event, actor, signal } = options;
    const request = { path: PATH, query: buildQuery({ after, event, actor }), signal };
    return readLog(
      this.#transport,
      { ...request, maxLineLength: MAX_LINE_LENGTH },
      parseOrganizationAuditEntry,
    );
  }

  /**
   * Fetches position and hash of the last entry. Keep them elsewhere: they reveal a log whose end was cut off.
   *
   * @example
   * const head = await client.organization.auditHead();
   */
  auditHead(options: CallOptions = {}): Promise<AuditHead> {
    return fetchAuditHead(this.#transport, PATH, options);
  }
}
