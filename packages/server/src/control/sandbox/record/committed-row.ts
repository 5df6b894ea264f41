/**
 * A sandbox's row as SQL has it. If the answer to a commit is lost, it is unknown whether the commit was made. The row
 * is then in doubt, and is read again before the next decision that depends on it.
 */
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import type { SandboxRow, SandboxUpdate } from './sandbox-tables.ts';
import type { SandboxStore } from './sandbox-store.ts';

export interface CommittedRowParts {
  store: SandboxStore;
  audit: AuditLog;
}

export class CommittedRow {
  readonly #store: SandboxStore;
  readonly #audit: AuditLog;
  #row: SandboxRow;
  #isInDoubt = false;

  constructor(row: SandboxRow, { store, audit }: CommittedRowParts) {
    this.#row = row;
    this.#store = store;
    this.#audit = audit;
  }

  get current(): Readonly<SandboxRow> {
    return this.#row;
  }

  /** Commits a change. With `notes`, the change and its audit entries are committed together: all or none. */
  async commit(change: SandboxUpdate, notes?: AuditNote | readonly AuditNote[]): Promise<void> {
    this.#isInDoubt = true;
    const row = this.#row;
    this.#row =
      notes === undefined
        ? await this.#store.update(row, change)
        : await this.#audit.commit(row.id, notes, (transaction) =>
            this.#store.within(transaction).update(row, change),
          );
    this.#isInDoubt = false;
  }

  /** Reads the row again if it is in doubt. Returns whether it was. */
  async settle(): Promise<boolean> {
    if (!this.#isInDoubt) return false;
    this.#row = await this.#store.get(this.#row.id);
    this.#isInDoubt = false;
    return true;
  }

  noteSeen(seen: HostMoment): void {
    this.#row = { ...this.#row, last_seen_at: seen.wallMs, last_seen_boot_ms: seen.bootMs };
  }
}
