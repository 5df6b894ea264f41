/**
 * Lists of sandboxes from SQL, which has those of all controls. The drivers of this control add what only they know: the
 * operation under way, and the end to the millisecond.
 */
import type { SandboxRecord } from '@coppice/contract';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { Detaching } from '../disks/detachments.ts';
import type { SandboxDisks } from '../disks/sandbox-disks.ts';
import { buildRecord, isUsingDisk } from './record/record.ts';
import type { SandboxFilter, SandboxStore } from './record/sandbox-store.ts';
import { readStoredState, type ListedRow } from './record/stored-state.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';

export interface SandboxListsParts {
  store: Pick<SandboxStore, 'list' | 'listByIds'>;
  drivers: { find: (id: string) => Pick<SandboxDriver, 'row' | 'record'> | undefined };
  disks: Pick<SandboxDisks, 'listDetaching'>;
}

/** Records, and when each was created in Unix milliseconds, for cursors. */
export interface ListedSandboxes {
  records: SandboxRecord[];
  createdAt: number[];
}

export class SandboxLists {
  readonly #parts: SandboxListsParts;

  constructor(parts: SandboxListsParts) {
    this.#parts = parts;
  }

  /** Returns matching sandboxes, the newest first. */
  async list(filter: SandboxFilter): Promise<ListedSandboxes> {
    const rows = await this.#parts.store.list(filter);
    return { records: await this.#show(rows), createdAt: rows.map((row) => row.created_at) };
  }

  /** Returns those that exist within reach, by id. */
  async findAll(reach: Reach, ids: readonly string[]): Promise<Map<string, SandboxRecord>> {
    const records = await this.#show(await this.#parts.store.listByIds(reach, ids));
    return new Map(records.map((record) => [record.id, record]));
  }

  async find(reach: Reach, id: string): Promise<SandboxRecord | undefined> {
    return (await this.findAll(reach, [id])).get(id);
  }

  async #show(rows: readonly ListedRow[]): Promise<SandboxRecord[]> {
    const detaching = await this.#findDetaching(rows);
    return rows.map((row) => {
      const driver = this.#parts.drivers.find(row.id);
      // A change that was committed after the statement might not match the filter.
      if (driver?.row.version === row.version) return driver.record;
      return buildRecord(row, { ...readStoredState(row), detaching: detaching.get(row.id) });
    });
  }

  /** Finds what is known of disks that these sandboxes no longer use, while the disks are not free yet. */
  #findDetaching(rows: readonly ListedRow[]): Promise<Map<string, Detaching>> {
    const unused = rows.filter(({ status, disk_name }) => disk_name !== null && !isUsingDisk(status));
    return this.#parts.disks.listDetaching(unused.map(({ id }) => id));
  }
}
