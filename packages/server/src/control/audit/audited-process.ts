/**
 * The two entries of a process in a sandbox: one that it begins, one that it has ended.
 *
 *     begin ─► opening, durable before the caller is told that it runs ─► end ─► closing, durable before the exit is told
 *                                                                    └──► nobody saw the exit: closing without a code
 *
 * A closing entry is missing only where this service died, or where the sandbox's end came first.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { AuditNote } from './audit-chain.ts';
import type { AuditLog } from './audit-log.ts';

export interface AuditedProcessParts {
  audit: AuditLog;
  /** The sandbox's. */
  id: string;
  log: Pick<Logger, 'warn'>;
}

/** How a process ended, as the log has it. */
export interface ProcessEnd {
  /** Null when nobody saw it. */
  exit_code: number | null;
  duration_ms: number;
  start_seq: number;
}

export interface ProcessNotes {
  opening: AuditNote;
  closing: (end: ProcessEnd) => AuditNote;
}

/** Of a command, whatever it came by. */
export function commandNotes(command: string): ProcessNotes {
  return {
    opening: { event: 'exec.start', data: { command } },
    closing: (end) => ({ event: 'exec.exit', data: { command, ...end } }),
  };
}

/** Of a terminal; what is typed there is not seen. */
export function terminalNotes(command: string | undefined): ProcessNotes {
  return {
    opening: { event: 'terminal.opened', data: command === undefined ? {} : { command } },
    closing: (end) => ({ event: 'terminal.closed', data: end }),
  };
}

export class AuditedProcess {
  readonly #parts: AuditedProcessParts;
  readonly #notes: ProcessNotes;
  readonly #startSeq: Promise<number>;
  readonly #startedAtMs = performance.now();
  /** It is not waited for any more. */
  readonly #forget: () => void;
  #isClosed = false;

  private constructor(parts: AuditedProcessParts, notes: ProcessNotes) {
    this.#parts = parts;
    this.#notes = notes;
    this.#forget = parts.audit.processes.add(parts.id);
    this.#startSeq = parts.audit.append(parts.id, notes.opening);
    this.#startSeq.catch(this.#forget);
  }

  /** The opening entry is under way; {@link opened} tells when it is durable. */
  static begin(parts: AuditedProcessParts, notes: ProcessNotes): AuditedProcess {
    return new AuditedProcess(parts, notes);
  }

  /** The opening entry is durable. */
  static async open(parts: AuditedProcessParts, notes: ProcessNotes): Promise<AuditedProcess> {
    const process = new AuditedProcess(parts, notes);
    await process.#startSeq;
    return process;
  }

  /**
   * Starts the process while its opening entry is written, and resolves when both are done. A process whose entry cannot be
   * written is killed.
   */
  async opened<T extends { kill: () => void }>(start: () => Promise<T>): Promise<T> {
    const [process, noted] = await Promise.allSettled([start(), this.#startSeq]);
    if (process.status === 'rejected') {
      await this.abandon();
      throw process.reason;
    }
    if (noted.status === 'fulfilled') return process.value;
    process.value.kill();
    throw killedAtOnce(noted.reason);
  }

  /** Resolves when the entry is durable: before that nobody may be told. */
  async close(exitCode: number): Promise<void> {
    this.#isClosed = true;
    await this.#append(exitCode).finally(this.#forget);
  }

  /** For an end that nobody saw, if {@link close} has not come. Does not throw: there is nobody to tell. */
  async abandon(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    try {
      await this.#append(null);
    } catch (error) {
      this.#parts.log.warn({ err: error, sandbox_id: this.#parts.id }, 'the end of a process is not audited');
    } finally {
      this.#forget();
    }
  }

  async #append(exitCode: number | null): Promise<void> {
    const { audit, id } = this.#parts;
    const duration_ms = Math.round(performance.now() - this.#startedAtMs);
    const start_seq = await this.#startSeq;
    await audit.append(id, this.#notes.closing({ exit_code: exitCode, duration_ms, start_seq }));
  }
}

/** It has run for a moment: whoever takes a refusal for "not started" would run it twice. */
function killedAtOnce(cause: unknown): unknown {
  if (!(cause instanceof AppError) || cause.code !== 'unavailable') return cause;
  return new AppError(
    'outcome_unknown',
    'the command was started and killed, as the audit log cannot be written',
    {
      cause,
    },
  );
}
