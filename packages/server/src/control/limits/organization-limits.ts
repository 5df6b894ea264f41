/** The limits of each organization: those of the settings, unless the operator has set others for it. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { ControlLimits } from '../control-config.ts';
import type { Database } from '../db/database.ts';
import { ALWAYS_LIMITED, type LimitName, type OwnLimits } from './own-limits.ts';

/** Infinity: no limit. */
export interface Limits {
  /** Creating, running or hibernated. */
  sandboxes: number;
  /** Sum over creating and running sandboxes. */
  vcpus: number;
  memMiB: number;
  /** Open at the same time. */
  openRequests: number;
  openStreams: number;
  snapshotBytes: number;
  /** Long-term average rate. */
  requestsPerSecond: number;
  requestBurst: number;
  disks: number;
  /** Sum of their sizes. */
  diskGb: number;
}

export type LimitsOf = (organizationId: string) => Limits;

export interface OrganizationLimitsParts {
  db: Database;
  defaults: ControlLimits;
  log: Logger;
}

export class OrganizationLimits implements AsyncDisposable {
  readonly #parts: OrganizationLimitsParts;
  readonly #defaults: Limits;
  readonly #stop = new AbortController();
  #own: ReadonlyMap<string, Limits> = new Map();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: OrganizationLimitsParts) {
    this.#parts = parts;
    this.#defaults = readDefaults(parts.defaults);
  }

  /** Returns the limits of an organization, from memory: every request calls it. */
  readonly of: LimitsOf = (organizationId) => this.#own.get(organizationId) ?? this.#defaults;

  /** Reads the stored limits, and again every few seconds. */
  async start(): Promise<void> {
    await this.#refresh();
    this.#loop = this.#run();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    for (;;) {
      await delay(this.#parts.defaults.accountIntervalMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      await this.#refresh().catch((error: unknown) =>
        this.#parts.log.warn(
          { err: error },
          'the limits of organizations could not be read; the last ones hold',
        ),
      );
    }
  }

  async #refresh(): Promise<void> {
    const rows = await this.#parts.db.selectFrom('organization_limits').selectAll().execute();
    this.#own = new Map(rows.map((row) => [row.organization_id, override(this.#defaults, row)]));
  }
}

function readDefaults(limits: ControlLimits): Limits {
  return {
    sandboxes: orInfinity(limits.sandboxesPerOrganization),
    vcpus: orInfinity(limits.vcpusPerOrganization),
    memMiB: orInfinity(limits.memMiBPerOrganization),
    openRequests: orInfinity(limits.openRequestsPerOrganization),
    openStreams: orInfinity(limits.openStreamsPerOrganization),
    snapshotBytes: limits.snapshotBytesPerOrganization,
    requestsPerSecond: orInfinity(limits.requestsPerSecond),
    requestBurst: limits.requestBurst,
    disks: orInfinity(limits.disksPerOrganization),
    diskGb: orInfinity(limits.diskGbPerOrganization),
  };
}

function override(defaults: Limits, own: OwnLimits): Limits {
  const pick = (name: LimitName, general: number): number => {
    const limit = own[name] ?? general;
    return own[name] === null || ALWAYS_LIMITED.has(name) ? limit : orInfinity(limit);
  };
  return {
    sandboxes: pick('sandboxes', defaults.sandboxes),
    vcpus: pick('vcpus', defaults.vcpus),
    memMiB: pick('mem_mib', defaults.memMiB),
    openRequests: pick('open_requests', defaults.openRequests),
    openStreams: pick('open_streams', defaults.openStreams),
    snapshotBytes: pick('snapshot_bytes', defaults.snapshotBytes),
    requestsPerSecond: pick('rate_limit_rps', defaults.requestsPerSecond),
    requestBurst: pick('rate_limit_burst', defaults.requestBurst),
    disks: pick('disks', defaults.disks),
    diskGb: pick('disk_gb', defaults.diskGb),
  };
}

function orInfinity(limit: number): number {
  return limit === 0 ? Infinity : limit;
}
