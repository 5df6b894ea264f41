/** All live sandboxes of this service, each with its driver; ended ones are read from SQL. */
import { randomBytes } from 'node:crypto';
import {
  AppError,
  parseImageReference,
  type CreateSandboxRequest,
  type SandboxRecord,
} from '@coppice/contract';
import type { ImageUses } from '../images/image-uses.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import type { Registries } from '../registries/registries.ts';
import type { NewSandboxRow } from '../db/tables.ts';
import { momentOf } from './clock.ts';
import { PendingInserts } from './pending-inserts.ts';
import { buildRecord } from './record.ts';
import { enterRecordStep } from './steps.ts';
import { SandboxDriver, type DriverParts } from './sandbox-driver.ts';
import type { SandboxFilter, SandboxStore } from './sandbox-store.ts';

export interface SandboxesParts extends Omit<DriverParts, 'onFinal'> {
  region: string;
  registries: Registries;
  imageUses: ImageUses;
}

export interface CreateSandbox {
  organizationId: string;
  /** From `newSandboxId()`. */
  id: string;
  request: CreateSandboxRequest;
}

const SANDBOX_ID = /^run[0-9a-f]{20}$/;

/** `run` and 20 hex digits. */
export function newSandboxId(): string {
  return `run${randomBytes(10).toString('hex')}`;
}

export class Sandboxes implements Disposable {
  readonly #parts: SandboxesParts;
  readonly #store: SandboxStore;
  readonly #runner: RunnerClient;
  readonly #drivers = new Map<string, SandboxDriver>();
  readonly #inserts: PendingInserts;

  constructor(parts: SandboxesParts) {
    this.#parts = parts;
    this.#store = parts.store;
    this.#runner = parts.runner;
    this.#inserts = new PendingInserts(parts.store);
  }

  /** Takes up what the records say is alive. */
  async load(): Promise<void> {
    for (const row of await this.#store.listAlive()) {
      const driver = this.#addDriver(row.id, new SandboxDriver(row, this.#driverParts()));
      driver.adopt();
    }
  }

  [Symbol.dispose](): void {
    for (const driver of this.#drivers.values()) driver.detach();
  }

  /** Resolves when a first command could run. A create that fails leaves a `failed` record and nothing else. */
  async create({ organizationId, id, request }: CreateSandbox): Promise<SandboxRecord> {
    const reference = parseImageReference(request.image);
    const login = await this.#parts.registries.findLogin(organizationId, reference);
    await enterRecordStep('record.insert');
    this.#checkQuota(organizationId);
    // Refused before there is a record: callers who try again and again would leave one each time.
    const { image, vcpus, mem_mib, disk_mib } = request;
    await this.#runner.admitVm(id, { image, vcpus, mem_mib, disk_mib });
    const row = await this.#inserts.insert(this.#buildRow(organizationId, id, request));
    const driver = this.#addDriver(id, new SandboxDriver(row, this.#driverParts()));
    const record = await driver.boot({ login });
    await this.#parts.imageUses.note(organizationId, record.image);
    return record;
  }

  /** Throws `not_found` when this organization has no such sandbox. */
  async get(organizationId: string, id: string): Promise<SandboxRecord> {
    const record = await this.find(organizationId, id);
    if (record === undefined) throw notFound(id);
    return record;
  }

  async find(organizationId: string, id: string): Promise<SandboxRecord | undefined> {
    const driver = this.#findDriver(organizationId, id);
    if (driver !== undefined) return driver.record;
    const row = SANDBOX_ID.test(id) ? await this.#store.find(organizationId, id) : undefined;
    return row && buildRecord(row);
  }

  /** The driver of a sandbox that is alive; `invalid_state` for one that has ended, `not_found` for no one. */
  async getDriver(organizationId: string, id: string): Promise<SandboxDriver> {
    const driver = this.#findDriver(organizationId, id);
    if (driver !== undefined) return driver;
    const { status } = await this.get(organizationId, id);
    throw new AppError('invalid_state', `the sandbox is ${status}`, { details: { status } });
  }

  async list(filter: SandboxFilter): Promise<{ records: SandboxRecord[]; createdAt: number[] }> {
    const rows = await this.#store.list(filter);
    return {
      records: rows.map((row) => this.#drivers.get(row.id)?.record ?? buildRecord(row)),
      createdAt: rows.map((row) => row.created_at),
    };
  }

  /** Takes up records whose insert was made although its answer was lost: creates that nobody finishes. */
  recoverInserts(): Promise<void> {
    return this.#inserts.resolve((row) => {
      this.#addDriver(row.id, new SandboxDriver(row, this.#driverParts()));
    });
  }

  /** Every live sandbox, of every organization: for the reconciler. */
  listDrivers(): SandboxDriver[] {
    return [...this.#drivers.values()];
  }

  findDriver(id: string): SandboxDriver | undefined {
    return this.#drivers.get(id);
  }

  #findDriver(organizationId: string, id: string): SandboxDriver | undefined {
    const driver = this.#drivers.get(id);
    return driver?.row.organization_id === organizationId ? driver : undefined;
  }

  #addDriver(id: string, driver: SandboxDriver): SandboxDriver {
    this.#drivers.set(id, driver);
    return driver;
  }

  #driverParts(): DriverParts {
    return { ...this.#parts, onFinal: (driver) => this.#drivers.delete(driver.row.id) };
  }

  #checkQuota(organizationId: string): void {
    const limit = this.#parts.limits.sandboxesPerOrganization;
    const live = this.listDrivers().filter((driver) => driver.row.organization_id === organizationId).length;
    const used = live + this.#inserts.count(organizationId);
    if (used >= limit) {
      throw new AppError(
        'capacity',
        `the organization has ${used} live sandboxes, the limit is ${limit}; destroy one`,
      );
    }
  }

  #buildRow(organizationId: string, id: string, request: CreateSandboxRequest): NewSandboxRow {
    const now = momentOf(this.#parts.clock);
    return {
      id,
      organization_id: organizationId,
      status: 'creating',
      image: request.image,
      region: this.#parts.region,
      vcpus: request.vcpus,
      mem_mib: request.mem_mib,
      disk_mib: request.disk_mib,
      timeout_s: request.timeout,
      max_lifetime_s: request.max_lifetime ?? null,
      labels: JSON.stringify(request.labels),
      created_at: now.wallMs,
      last_active_at: now.wallMs,
      last_seen_at: now.wallMs,
      boot_id: now.bootId,
      created_boot_ms: now.bootMs,
      last_seen_boot_ms: now.bootMs,
    };
  }
}

function notFound(id: string): AppError {
  return new AppError('not_found', `there is no sandbox ${JSON.stringify(id.slice(0, 64))}`);
}
