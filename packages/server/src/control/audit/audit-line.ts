/** What waits to be written to audit logs. */
import type { AuditEntryRow } from './audit-tables.ts';
import type { Database } from '../db/database.ts';
import type { AuditChain, AuditNote } from './audit-chain.ts';

export interface Waiting {
  /** Written together. */
  notes: readonly AuditNote[];
  /** What must be committed with it. */
  work?: (transaction: Database) => Promise<unknown>;
  resolve: (written: Written) => void;
  reject: (error: unknown) => void;
}

export interface Written {
  seq: number;
  result: unknown;
}

/** A sandbox whose entries pass here. */
export interface Line {
  sandboxId: string;
  /** Undefined when it is to be read from SQL. */
  chain: AuditChain | undefined;
  waiting: Waiting[];
  isBusy: boolean;
}

/** What is written of one line at a time. */
export interface Part {
  line: Line;
  items: Waiting[];
  /** As they were tried last, and what they were chained to. */
  rows?: AuditEntryRow[];
  previous?: string;
}
