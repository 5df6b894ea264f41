/** The head of one sandbox's audit chain, and the construction of its next entries. No I/O. */
import { createHmac } from 'node:crypto';
import {
  AppError,
  buildAuditSeed,
  buildAuditText,
  canonicalize,
  isLastEvent,
  type AuditData,
  type AuditEntry,
  type AuditEvent,
} from '@coppice/contract';
import type { Secret } from '../../lib/secret.ts';
import type { AuditEntryRow } from './audit-tables.ts';

/** An event to write to an audit log. */
export type AuditNote = {
  [E in AuditEvent]: {
    event: E;
    data: AuditData<E>;
    /** Time of the event in Unix milliseconds; default: now. */
    atMs?: number;
  };
}[AuditEvent];

/** The last entry of a chain. */
export type ChainHead = Pick<AuditEntryRow, 'seq' | 'hmac' | 'ts' | 'event'>;

export class AuditChain {
  readonly #sandboxId: string;
  readonly #secret: Secret;
  #head: ChainHead | undefined;

  constructor(sandboxId: string, secret: Secret, head: ChainHead | undefined) {
    this.#sandboxId = sandboxId;
    this.#secret = secret;
    this.#head = head;
  }

  get isClosed(): boolean {
    return this.#head !== undefined && isLastEvent(this.#head.event);
  }

  /** The HMAC or seed that the next entry is chained to. */
  get previous(): string {
    return this.#head?.hmac ?? buildAuditSeed(this.#sandboxId);
  }

  /** Returns whether the chain ends with these rows. */
  endsWith(rows: readonly AuditEntryRow[]): boolean {
    const last = rows.at(-1);
    return last !== undefined && last.seq === this.#head?.seq && last.hmac === this.#head.hmac;
  }

  /** Builds the next entries without adding them. Throws `invalid_state` if the chain is closed. */
  extend(notes: readonly AuditNote[], nowMs: number): AuditEntryRow[] {
    if (this.isClosed)
      throw new AppError('invalid_state', 'the sandbox has ended, and its audit log with it');
    const rows: AuditEntryRow[] = [];
    let head = this.#head;
    for (const { event, data, atMs = nowMs } of notes) {
      const row = this.#build({ event, data, head, nowMs: Math.min(atMs, nowMs) });
      rows.push(row);
      head = row;
    }
    return rows;
  }

  /** Moves the head to the last of these rows, which are now in SQL. */
  advance(rows: readonly AuditEntryRow[]): void {
    this.#head = rows.at(-1) ?? this.#head;
  }

  #build({ event, data, head, nowMs }: NextEntry): AuditEntryRow {
    const seq = (head?.seq ?? 0) + 1;
    // The times of a chain must not decrease, even if the clock was set back.
    const ts = Math.max(Math.round(nowMs), head?.ts ?? 0);
    const entry = { seq, ts: new Date(ts).toISOString(), sandbox_id: this.#sandboxId, event, data };
    const text = buildAuditText(head?.hmac ?? buildAuditSeed(this.#sandboxId), entry);
    const digest = createHmac('sha256', this.#secret.reveal()).update(text).digest('hex');
    return {
      sandbox_id: this.#sandboxId,
      seq,
      ts,
      event,
      data: canonicalize(data),
      hmac: `sha256:${digest}`,
    };
  }
}

interface NextEntry {
  event: AuditEvent;
  data: Record<string, unknown>;
  head: ChainHead | undefined;
  nowMs: number;
}

/** Formats an entry as it is sent. `data` stays byte for byte as it was hashed. */
export function formatEntry({ seq, ts, sandbox_id, event, data, hmac }: AuditEntryRow): string {
  const head = { seq, ts: new Date(ts).toISOString(), sandbox_id, event } satisfies Partial<AuditEntry>;
  return `${JSON.stringify(head).slice(0, -1)},"data":${data},"hmac":"${hmac}"}\n`;
}
