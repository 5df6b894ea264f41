/** Entries that wait to be written to audit logs. */
import type { AuditEntryRow } from './audit-tables.ts';
import type { Database } from '../db/database.ts';
import type { AuditChain, AuditNote } from './audit-chain.ts';

export interface Waiting {
  /** Entries that are written together. */
  notes: readonly AuditNote[];
  /** The change to commit together with the entries. It gets the `seq` of the last one. */
  work?: (transaction: Database, seq: number) => Promise<unknown>;
  resolve: (written: Written) => void;
  reject: (error: unknown) => void;
}

export interface Written {
  seq: number;
  result: unknown;
}

/** The entries of one sandbox that wait. */
export interface Line {
  sandboxId: string;
  /** Undefined until it is read from SQL. */
  chain: AuditChain | undefined;
  waiting: Waiting[];
  isBusy: boolean;
}

/** The items of one line that are written at the same time. */
export interface Part {
  line: Line;
  items: Waiting[];
  /** Rows of the last attempt; `previous` is the HMAC or seed that they were chained to. */
  rows?: AuditEntryRow[];
  previous?: string;
}
