/**
 * Writes notes of the egress process, which the runner sends, to audit logs:
 *
 *     runner ─ egress_note … vm_ended ─► here ─► entries and cursor, in one transaction ─► acknowledged
 *
 * Each note is written exactly once. The runner sends it until it is acknowledged. The sandbox's cursor is the last
 * event in its log, for each generation of the runner's spool, as each generation numbers its events anew. Notes for a
 * closed log are dropped, and so are those of a runner that, by SQL, does not have the sandbox. So an end waits until the runner has sent everything before it: the event of the end comes
 * last.
 */
import { AppError } from '@coppice/contract';
import { sql } from 'kysely';
import type { Logger } from 'pino';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import type { EgressNote } from '../../lib/protocol/egress-protocol.ts';
import type { EventPlace } from '../../lib/protocol/runner-protocol.ts';
import type { AuditNote } from '../audit/audit-chain.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { Database } from '../db/database.ts';

/** Limit of one transaction. */
const MAX_BATCH = 256;
/** How long an end waits for its event, which a running runner sends at once. */
const END_DEADLINE_MS = 1_000;

export interface NoteEvent extends EventPlace {
  vm_id: string;
  note: EgressNote;
}

interface Waiting {
  event: NoteEvent;
  /** The runner that sent it. */
  from: string;
  resolve: () => void;
  reject: (error: unknown) => void;
}

interface Line {
  waiting: Waiting[];
  /** Resolves when nothing waits any more. Never rejects. */
  work: Promise<void> | undefined;
}

export interface EgressNotesParts {
  db: Database;
  audit: Pick<AuditLog, 'commit'>;
  log: Logger;
}

export class EgressNotes {
  readonly #parts: EgressNotesParts;
  readonly #lines = new Map<string, Line>();
  /** VMs whose end the runner has reported, or for whose end a caller waits. */
  readonly #ended = new Map<string, PromiseWithResolvers<void>>();

  constructor(parts: EgressNotesParts) {
    this.#parts = parts;
  }

  /**
   * Resolves when the note of this runner is in the log, or never will be. `begun` resolves when the log has its first
   * entry.
   */
  take(event: NoteEvent, from: string, begun: Promise<void>): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const line = this.#lines.get(event.vm_id) ?? { waiting: [], work: undefined };
    this.#lines.set(event.vm_id, line);
    line.waiting.push({ event, from, resolve, reject });
    line.work ??= this.#writeAll(event.vm_id, line, begun);
    return promise;
  }

  /**
   * Call when the runner has reported the end of a VM, and so everything before it. Does not wait for notes of a log
   * that has not begun: this end may decide that it never begins.
   */
  async noteEnd(id: string, { hasBegun }: { hasBegun: boolean }): Promise<void> {
    if (hasBegun) await this.#lines.get(id)?.work;
    this.#endOf(id).resolve();
  }

  /** Call when the end has been processed: nothing waits for it any more. */
  forgetEnd(id: string): void {
    this.#ended.delete(id);
  }

  /** Resolves when all notes of a VM that has ended are in its log, or at the deadline. */
  async ended(id: string): Promise<void> {
    const { promise } = this.#endOf(id);
    await withDeadline('the end of a VM', END_DEADLINE_MS, promise).catch(() => undefined);
    this.#ended.delete(id);
  }

  #endOf(id: string): PromiseWithResolvers<void> {
    const end = this.#ended.get(id) ?? Promise.withResolvers<void>();
    this.#ended.set(id, end);
    return end;
  }

  async #writeAll(id: string, line: Line, begun: Promise<void>): Promise<void> {
    await begun;
    while (line.waiting.length > 0) {
      const batch = takeBatch(line.waiting);
      try {
        await this.#write(id, batch);
        for (const { resolve } of batch) resolve();
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    line.work = undefined;
    this.#lines.delete(id);
  }

  async #write(id: string, batch: readonly Waiting[]): Promise<void> {
    const [first] = batch;
    if (first === undefined) return;
    const { from: runnerId } = first;
    const written = await this.#findCursor(id, runnerId, first.event.generation);
    if (written === undefined) {
      const of = { runner_id: runnerId, sandbox_id: id, notes: batch.length };
      this.#parts.log.warn(of, 'notes of a runner about a sandbox that it does not have are ignored');
      return;
    }
    const events = batch.map(({ event }) => event).filter(({ seq }) => seq > written);
    const last = events.at(-1);
    if (last === undefined) return;
    try {
      await this.#parts.audit.commit(id, events.map(buildNote), (transaction) =>
        moveCursor(transaction, { id, runnerId, from: written, to: last }),
      );
    } catch (error) {
      if (!isClosed(error)) throw error;
      this.#parts.log.warn(
        { err: error, sandbox_id: id, notes: events.length },
        'notes of a sandbox came too late for its audit log',
      );
    }
  }

  /** Returns undefined if the runner does not have the sandbox. */
  async #findCursor(id: string, runnerId: string, generation: string): Promise<number | undefined> {
    const rows = await this.#parts.db
      .selectFrom('sandboxes')
      .leftJoin('egress_cursors', 'sandbox_id', 'sandboxes.id')
      .select(['generation', 'seq'])
      .where('sandboxes.id', '=', id)
      .where('runner_id', '=', runnerId)
      .execute();
    if (rows.length === 0) return undefined;
    const row = rows.find((each) => each.generation === generation);
    if (row === undefined && rows.some((each) => each.generation !== null))
      this.#parts.log.warn(
        { sandbox_id: id, generation },
        "the runner's event spool was lost and begins anew: notes of the sandbox that it had not sent are missing",
      );
    return row?.seq ?? 0;
  }
}

/** Takes the first waiting notes, all of one generation of one runner. */
function takeBatch(waiting: Waiting[]): Waiting[] {
  const [first] = waiting;
  const other = waiting.findIndex(
    ({ event, from }) => event.generation !== first?.event.generation || from !== first.from,
  );
  return waiting.splice(0, Math.min(MAX_BATCH, other === -1 ? waiting.length : other));
}

/**
 * Throws unless the runner has the sandbox and the cursor is at `from`. Otherwise a statement whose answer was lost has
 * written the entries already, or the sandbox has been moved meanwhile.
 */
async function moveCursor(
  transaction: Database,
  {
    id,
    runnerId,
    from,
    to: { generation, seq },
  }: { id: string; runnerId: string; from: number; to: EventPlace },
): Promise<void> {
  const { rows } = await sql`
    INSERT INTO egress_cursors (sandbox_id, generation, seq)
    SELECT id, ${generation}, ${seq} FROM sandboxes WHERE id = ${id} AND runner_id = ${runnerId}
    ON CONFLICT (sandbox_id, generation) DO UPDATE SET seq = excluded.seq WHERE egress_cursors.seq = ${from}
    RETURNING seq`.execute(transaction);
  if (rows.length === 0)
    throw new AppError('unavailable', 'the audit log was written meanwhile; try again', { details: { id } });
}

function buildNote({ note: { event, data, ts } }: NoteEvent): AuditNote {
  return { event, data, atMs: Date.parse(ts) } as AuditNote;
}

/** Returns whether the log is closed, does not exist, or cannot be written any more. */
function isClosed(error: unknown): boolean {
  const codes: ReadonlySet<string> = new Set(['invalid_state', 'internal', 'secret_unreadable']);
  return error instanceof AppError && codes.has(error.code);
}
