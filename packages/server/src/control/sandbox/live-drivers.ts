/** The drivers of all sandboxes that are alive, of every organization: one each, from its insert to its end. */
import { AppError } from '@coppice/contract';
import type { ControlLimits } from '../control-config.ts';
import type { NewSandboxRow, SandboxRow } from '../db/tables.ts';
import { PendingInserts } from './pending-inserts.ts';
import { SandboxDriver, type DriverParts } from './sandbox-driver.ts';

export interface LiveDriversParts extends Omit<DriverParts, 'onFinal'> {
  limits: ControlLimits;
}

export class LiveDrivers implements Disposable {
  readonly #parts: LiveDriversParts;
  readonly #drivers = new Map<string, SandboxDriver>();
  readonly #inserts: PendingInserts;

  constructor(parts: LiveDriversParts) {
    this.#parts = parts;
    this.#inserts = new PendingInserts(parts.store);
  }

  /** Takes up what the records say is alive. */
  async load(): Promise<void> {
    for (const row of await this.#parts.store.listAlive()) this.#add(row).adopt();
  }

  /** The sandboxes live on. */
  [Symbol.dispose](): void {
    for (const driver of this.#drivers.values()) driver.detach();
  }

  list(): SandboxDriver[] {
    return [...this.#drivers.values()];
  }

  find(id: string): SandboxDriver | undefined {
    return this.#drivers.get(id);
  }

  /** Undefined when it is another organization's. */
  findOf(organizationId: string, id: string): SandboxDriver | undefined {
    const driver = this.#drivers.get(id);
    return driver?.row.organization_id === organizationId ? driver : undefined;
  }

  async insert(row: NewSandboxRow): Promise<SandboxDriver> {
    const [driver] = await this.insertAll([row]);
    if (driver === undefined) throw new AppError('internal', 'a record was not inserted');
    return driver;
  }

  /** All or none, of one organization; the drivers in the order of the rows. */
  async insertAll(rows: readonly NewSandboxRow[]): Promise<SandboxDriver[]> {
    const [first] = rows;
    if (first !== undefined) this.checkQuota(first.organization_id, rows.length);
    const inserted = new Map((await this.#inserts.insert(rows)).map((row) => [row.id, row]));
    return rows.flatMap(({ id }) => {
      const row = inserted.get(id);
      return row === undefined ? [] : [this.#add(row)];
    });
  }

  /** Takes up records whose insert was made although its answer was lost: creates that nobody finishes. */
  recoverInserts(): Promise<void> {
    return this.#inserts.resolve((row) => void this.#add(row));
  }

  /** Throws `capacity` when the organization may not have `count` more. */
  checkQuota(organizationId: string, count: number): void {
    const limit = this.#parts.limits.sandboxesPerOrganization;
    const live = this.list().filter((driver) => driver.row.organization_id === organizationId).length;
    const used = live + this.#inserts.count(organizationId);
    if (used + count <= limit) return;
    throw new AppError(
      'capacity',
      `the organization has ${used} live sandboxes and asks for ${count} more, the limit is ${limit}; destroy some`,
    );
  }

  #add(row: SandboxRow): SandboxDriver {
    const onFinal = (): boolean => this.#drivers.delete(row.id);
    const driver = new SandboxDriver(row, { ...this.#parts, onFinal });
    this.#drivers.set(row.id, driver);
    return driver;
  }
}
