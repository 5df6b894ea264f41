/** A service in which nothing is under way, as the invariants look at it: a simulated one and a real one alike. */
import type { Bills } from './bills.ts';
import type { Bounds } from './ran-for.ts';

export interface Reply {
  status: number;
  headers: Headers;
  text: string;
}

export interface CallOptions {
  body?: object;
  headers?: Record<string, string>;
}

export interface RestingService {
  /** As one organization's key. Undefined when no answer came. */
  call(method: string, path: string, options?: CallOptions): Promise<Reply | undefined>;
  /** Throws, with what differs, unless records, VMs and captures become the same on all sides within a deadline. */
  assertAgreement(): Promise<void>;
  /** `keyId`: the record's `audit_key_id`. */
  readAuditSecret(keyId: string): Promise<string>;
  /** See {@link Bills}: in SQL, as no client may read. */
  readBills(ids: readonly string[] | 'all'): Promise<Bills>;
  /** For how long a VM of a sandbox truly ran; undefined when only its callers' ledger can tell. */
  findRanFor(id: string): Bounds | undefined;
}

export function parseReply({ text }: Reply): unknown {
  return JSON.parse(text);
}
