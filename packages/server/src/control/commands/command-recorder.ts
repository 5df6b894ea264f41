/**
 * Writes what guests report of their commands to SQL and the audit log. Each end is in both or in neither. A guest may lie
 * about its own commands; it cannot add one that none of its ancestors has started, nor revive one without a rollback.
 */
import { AppError } from '@coppice/contract';
import type { AuditLog } from '../audit/audit-log.ts';
import type { GuestCommand } from '../placement/runner-commands.ts';
import type { Clock } from '../time/clock.ts';
import { buildEndNote, buildReport, isOpen, needsReport, type CommandEnd } from './command-changes.ts';
import { newCommandId } from './command-ids.ts';
import type { CommandStore } from './command-store.ts';
import type { CommandRow, CommandUpdate } from './command-tables.ts';

const MAX_UPDATES = 5;

export interface RecorderParts {
  store: CommandStore;
  audit: Pick<AuditLog, 'commit'>;
  clock: Pick<Clock, 'wallMs'>;
  /** Called with the id of each command whose row has changed. */
  onChange: (commandId: string) => void;
}

interface Agreement {
  /** Commands that are being started: the guest may not have them yet. */
  isStarting: (commandId: string) => boolean;
  /** Whether commands that had ended may run again, as after a rollback. */
  mayRevive: boolean;
}

export class CommandRecorder {
  readonly #parts: RecorderParts;

  constructor(parts: RecorderParts) {
    this.#parts = parts;
  }

  /** Brings the rows of a sandbox in line with all that its guest has. Returns how many of these are none of its. */
  async agree(
    sandbox: Pick<CommandRow, 'organization_id'> & { id: string },
    inGuest: readonly GuestCommand[],
    { isStarting, mayRevive }: Agreement,
  ): Promise<number> {
    const ids = inGuest.map(({ id }) => id);
    const rows = new Map(
      (await this.#parts.store.listOfGuest(sandbox.id, ids)).map((row) => [row.guest_id, row]),
    );
    for (const row of rows.values())
      if (isOpen(row) && !ids.includes(row.guest_id) && !isStarting(row.id)) await this.lose(row);
    const unknown: GuestCommand[] = [];
    for (const command of inGuest) {
      const row = rows.get(command.id);
      if (row === undefined) unknown.push(command);
      else if (needsReport(row, command, mayRevive)) await this.#report(row, command);
    }
    return unknown.length - (await this.#adopt(sandbox, unknown));
  }

  /** Records an end that a guest reports. Returns false if the command is none of this sandbox. */
  async settle(
    sandbox: Pick<CommandRow, 'organization_id'> & { id: string },
    ended: GuestCommand,
  ): Promise<boolean> {
    const row = await this.#parts.store.findByGuestId(sandbox.id, ended.id);
    if (row === undefined) return (await this.#adopt(sandbox, [ended])) === 1;
    if (isOpen(row)) await this.#report(row, ended);
    return true;
  }

  /** Ends the commands that still run when their sandbox ends. Call it before the last entry of its log. */
  async loseAll(sandboxId: string): Promise<void> {
    for (const row of await this.#parts.store.listOpenOf(sandboxId)) await this.lose(row);
  }

  /** Records that the guest does not have the command, or could not start it. */
  lose(row: CommandRow): Promise<void> {
    return this.#end(row, { state: 'lost', ended_at: this.#parts.clock.wallMs() });
  }

  async #report(row: CommandRow, command: GuestCommand): Promise<void> {
    const report = buildReport(row, command, this.#parts.clock.wallMs());
    if (isOpen(row) && report.state === 'exited') return this.#end(row, report);
    await this.#parts.store.update(row, report);
    this.#parts.onChange(row.id);
  }

  /** A start may change the row meanwhile: then it is read again. */
  async #end(row: CommandRow, end: CommandEnd & CommandUpdate): Promise<void> {
    const { store, audit, onChange } = this.#parts;
    let current: CommandRow | undefined = row;
    for (let tries = 0; tries < MAX_UPDATES && current !== undefined && isOpen(current); tries += 1) {
      const open: CommandRow = current;
      const write = async (transaction: Parameters<CommandStore['within']>[0]): Promise<true> =>
        requireWritten(await store.within(transaction).update(open, end));
      if (await audit.commit(row.sandbox_id, buildEndNote(open, end), write).catch(ifNotWritten))
        return onChange(row.id);
      current = await store.find(row.sandbox_id, row.id);
    }
  }

  /** Gives commands of a copied guest rows in the copy. Returns how many there are. */
  async #adopt(
    { id, organization_id }: Pick<CommandRow, 'organization_id'> & { id: string },
    commands: readonly GuestCommand[],
  ): Promise<number> {
    if (commands.length === 0) return 0;
    const { store, clock } = this.#parts;
    const inherited = new Map(
      (
        await store.listInherited(
          id,
          commands.map((command) => command.id),
        )
      ).map((row) => [row.id, row]),
    );
    let count = 0;
    for (const command of commands) {
      const started = inherited.get(command.id);
      if (started === undefined) continue;
      const { guest_id, command: text, tag, started_at } = started;
      const row = {
        id: newCommandId(),
        organization_id,
        sandbox_id: id,
        guest_id,
        command: text,
        tag,
        started_at,
      };
      await store.insert({ ...row, start_seq: null, ...buildReport(started, command, clock.wallMs()) });
      count += 1;
    }
    return count;
  }
}

class NotWritten extends Error {}

function requireWritten(isWritten: boolean): true {
  if (!isWritten) throw new NotWritten();
  return true;
}

/** The log of a sandbox that has ended takes no entry. */
function ifNotWritten(error: unknown): boolean {
  if (error instanceof NotWritten || (error instanceof AppError && error.code === 'invalid_state'))
    return false;
  throw error;
}
