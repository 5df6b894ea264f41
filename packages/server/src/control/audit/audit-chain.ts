/** One sandbox's chain as it stands, and what comes next in it. No I/O. */
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

/** What is to be written down. */
export type AuditNote = {
  [E in AuditEvent]: {
    event: E;
    data: AuditData<E>;
    /** When it was, if that is not now: in Unix milliseconds. */
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

  /** What the next entry is chained to. */
  get previous(): string {
    return this.#head?.hmac ?? buildAuditSeed(this.#sandboxId);
  }

  /** True when these rows are what it ends with. */
  endsWith(rows: readonly AuditEntryRow[]): boolean {
    const last = rows.at(-1);
    return last !== undefined && last.seq === this.#head?.seq && last.hmac === this.#head.hmac;
  }

  /** The entries that come next, not yet part of it. Throws `invalid_state` when there was a last one. */
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

  /** These rows are in SQL now. */
  advance(rows: readonly AuditEntryRow[]): void {
    this.#head = rows.at(-1) ?? this.#head;
  }

  #build({ event, data, head, nowMs }: NextEntry): AuditEntryRow {
    const seq = (head?.seq ?? 0) + 1;
    // A clock that was set back must not make a chain whose times go back.
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

/** As it is sent. `data` is passed on as it was hashed. */
export function formatEntry({ seq, ts, sandbox_id, event, data, hmac }: AuditEntryRow): string {
  const head = { seq, ts: new Date(ts).toISOString(), sandbox_id, event } satisfies Partial<AuditEntry>;
  return `${JSON.stringify(head).slice(0, -1)},"data":${data},"hmac":"${hmac}"}\n`;
}
