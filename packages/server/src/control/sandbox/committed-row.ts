/**
 * A sandbox's row as SQL has it. When the answer to a commit is lost, the commit may have been made or not: the row is
 * then in doubt, and is read again before anything more is decided by it.
 */
import type { HostMoment } from '../../lib/host-clock.ts';
import type { SandboxRow, SandboxUpdate } from '../db/tables.ts';
import type { SandboxStore } from './sandbox-store.ts';

export class CommittedRow {
  readonly #store: SandboxStore;
  #row: SandboxRow;
  #isInDoubt = false;

  constructor(row: SandboxRow, store: SandboxStore) {
    this.#row = row;
    this.#store = store;
  }

  get current(): Readonly<SandboxRow> {
    return this.#row;
  }

  async commit(change: SandboxUpdate): Promise<void> {
    this.#isInDoubt = true;
    this.#row = await this.#store.update(this.#row.id, this.#row.status, change);
    this.#isInDoubt = false;
  }

  /** Reads the row again if it is in doubt; true when it was. */
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
