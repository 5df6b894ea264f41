/**
 * The two audit entries of a process in a sandbox: one for its start, one for its end.
 *
 *     begin ─► opening, durable before the caller learns of it ─► end ─► closing, durable before the exit is sent
 *                                                              └──► exit not observed: closing without a code
 *
 * A closing entry is missing only if control died, or if the sandbox's end came first.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { AuditNote } from './audit-chain.ts';
import type { AuditLog } from './audit-log.ts';

export interface AuditedProcessParts {
  audit: AuditLog;
  /** Id of the sandbox. */
  id: string;
  log: Pick<Logger, 'warn'>;
}

/** The end of a process as the log records it. */
interface ProcessEnd {
  /** Null if the exit was not observed. */
  exit_code: number | null;
  duration_ms: number;
  start_seq: number;
}

/** The log of a copy does not have the start of a command that began before the copy was made. */
type CommandEnd = Omit<ProcessEnd, 'start_seq'> & Partial<Pick<ProcessEnd, 'start_seq'>>;

export interface ProcessNotes<End = ProcessEnd> {
  opening: AuditNote;
  closing: (end: End) => AuditNote;
}

/** Entries of a command, however it was started. Only a command that outlives its client has an id. */
export function commandNotes(command: string, id?: string): ProcessNotes<CommandEnd> {
  const named = id === undefined ? { command } : { command, command_id: id };
  return {
    opening: { event: 'exec.start', data: named },
    closing: (end) => ({ event: 'exec.exit', data: { ...named, ...end } }),
  };
}

/** Entries of a terminal. Its input is not recorded. */
export function terminalNotes(command: string | undefined): ProcessNotes {
  return {
    opening: { event: 'terminal.opened', data: command === undefined ? {} : { command } },
    closing: (end) => ({ event: 'terminal.closed', data: end }),
  };
}

/** Entries of an SSH connection. Its content is encrypted up to the guest, and not recorded. */
export function sshNotes(user: string | undefined): ProcessNotes {
  return {
    opening: { event: 'ssh.opened', data: user === undefined ? {} : { user } },
    closing: (end) => ({ event: 'ssh.closed', data: end }),
  };
}

export class AuditedProcess {
  readonly #parts: AuditedProcessParts;
  readonly #notes: ProcessNotes;
  readonly #startSeq: Promise<number>;
  readonly #startedAtMs = performance.now();
  /** Ends the wait of the sandbox's last entry for this process. */
  readonly #forget: () => void;
  #isClosed = false;

  private constructor(parts: AuditedProcessParts, notes: ProcessNotes) {
    this.#parts = parts;
    this.#notes = notes;
    this.#forget = parts.audit.processes.add(parts.id);
    this.#startSeq = parts.audit.append(parts.id, notes.opening);
    this.#startSeq.catch(this.#forget);
  }

  /** Starts to write the opening entry; {@link opened} resolves when it is durable. */
  static begin(parts: AuditedProcessParts, notes: ProcessNotes): AuditedProcess {
    return new AuditedProcess(parts, notes);
  }

  /** Writes the opening entry, and resolves when it is durable. */
  static async open(parts: AuditedProcessParts, notes: ProcessNotes): Promise<AuditedProcess> {
    const process = new AuditedProcess(parts, notes);
    await process.#startSeq;
    return process;
  }

  /**
   * Starts the process while its opening entry is written, and resolves when both are done. Kills the process if the
   * entry cannot be written.
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

  /** Writes the closing entry, and resolves when it is durable. The exit must not be reported earlier. */
  async close(exitCode: number): Promise<void> {
    this.#isClosed = true;
    await this.#append(exitCode).finally(this.#forget);
  }

  /** Records an unobserved end unless {@link close} was called. Does not throw: no caller waits for it. */
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

/** The process has run for a moment. A caller that took a refusal for "not started" would run it twice. */
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
