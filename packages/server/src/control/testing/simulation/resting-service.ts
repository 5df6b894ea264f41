/** A simulated or real service in which no operation is running, as the invariants see it. */
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
  /** Sends a request with the key of one organization. Resolves to undefined when no answer came. */
  call(method: string, path: string, options?: CallOptions): Promise<Reply | undefined>;
  /** Throws the differences unless records, VMs and captures become the same on all sides within a deadline. */
  assertAgreement(): Promise<void>;
  /** `keyId`: the record's `audit_key_id`. */
  readAuditSecret(keyId: string): Promise<string>;
  /** Reads {@link Bills} by SQL, as no client may do. */
  readBills(ids: readonly string[] | 'all'): Promise<Bills>;
  /** Returns for how long a VM of a sandbox truly ran; undefined when only its callers' ledger can tell. */
  findRanFor(id: string): Bounds | undefined;
}

export function parseReply({ text }: Reply): unknown {
  return JSON.parse(text);
}
