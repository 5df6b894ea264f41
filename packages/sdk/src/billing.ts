import type { CallOptions } from './transport/client-options.ts';
import { fetchPage, formatLabels, PagedList, requireLimit, toPageItems } from './transport/paged-list.ts';
import type { Transport } from './transport/transport.ts';
import {
  buildQuery,
  encodeSegment,
  readArray,
  readFlag,
  readNumber,
  readObject,
  readOptionalNumber,
  readOptionalString,
  readString,
  readStringMap,
  type WireObject,
} from './transport/wire.ts';

const STATEMENT_PAGE_LINES = 1000;

/**
 * Usage and cost of your organization up to `asOf`; for a key that is limited to its team, those of the team. Amounts
 * are exact; fractions of cents are normal.
 */
export interface Usage {
  /** Number of sandboxes that are creating, running or hibernated. */
  activeSandboxes: number;
  /** Number of sandboxes that were destroyed or have failed, without creates that never ran. */
  historySandboxes: number;
  /** Cost of the active sandboxes up to now, in cents. */
  activeCostCents: number;
  /** Cost of the ended sandboxes, in cents. */
  historyCostCents: number;
  /** Cost of all sandboxes and disks, in cents. */
  totalCostCents: number;
  /** vCPU-seconds of billed time. */
  cpuSeconds: number;
  /** GiB-seconds of billed time. */
  memSeconds: number;
  /** Data that persistent disks stored, in GB of 2^30 bytes, multiplied by hours. */
  diskGbHours: number;
  /** Cost of that data, in cents. It is part of the total. */
  diskCostCents: number;
  /** All credit ever granted, in cents. Null when the service has no credit, or the key is limited to its team. */
  creditCents: number | null;
  /** Remaining credit, in cents. Below 0 when it is exhausted; null as for `creditCents`. */
  creditLeftCents: number | null;
  /** Time of these figures, ISO 8601 UTC. */
  asOf: string;
}

/** A sandbox that has ended. Times are ISO 8601 UTC. */
export interface HistoryEntry {
  /** Id of the sandbox. */
  id: string;
  /** `destroyed` or `failed`. */
  status: string;
  /** Reason why the sandbox ended. */
  statusReason: string | null;
  /** Id of the team of the key that created the sandbox. */
  teamId: string;
  /** Resolved image reference. */
  image: string;
  /** Number of virtual CPUs. */
  vcpus: number;
  /** Memory in MiB. */
  memMiB: number;
  /** Labels of the sandbox. */
  labels: Record<string, string>;
  /** Duration of the create in milliseconds. Null if an earlier service version billed a create that did not finish. */
  createMs: number | null;
  /** Time of the create. */
  createdAt: string;
  /** Time when the sandbox ended. */
  destroyedAt: string;
  /** Time from create to end in milliseconds, hibernation included. */
  uptimeMs: number;
  /** Uptime without hibernation in milliseconds. The cost is computed from it. */
  billedMs: number;
  /** CPU time of the whole VM in milliseconds. */
  cpuMs: number;
  /** Peak resident memory of the whole VM in bytes. */
  memPeakBytes: number;
  /** Cost in cents: the exact amount, so fractions are normal. */
  costCents: number;
}

/** Filters for a list of ended sandboxes. */
export interface HistoryOptions extends CallOptions {
  /** Lists only sandboxes with this status, `destroyed` or `failed`. Default: both. */
  status?: string | undefined;
  /** Lists only sandboxes that have all these labels. */
  labels?: Record<string, string> | undefined;
  /** Lists only sandboxes that ended at this time or later. */
  from?: Date | undefined;
  /** Lists only sandboxes that ended before this time. */
  to?: Date | undefined;
  /** Lists only sandboxes of this image: a reference as given to a create, or a resolved one. */
  image?: string | undefined;
  /** Maximum number of sandboxes over all pages, an integer above 0. Default: no limit. */
  limit?: number | undefined;
}

/** Sums over the sandboxes and disks of one month. */
export interface StatementSums {
  /** Number of sandboxes that ran in the month. */
  sandboxes: number;
  /** vCPU-seconds of billed time. */
  cpuSeconds: number;
  /** GiB-seconds of billed time. */
  memSeconds: number;
  /** Cost of sandboxes and disks in cents: the exact amount, so fractions are normal. */
  costCents: number;
  /** Data that persistent disks stored, in GB of 2^30 bytes, multiplied by hours. */
  diskGbHours: number;
  /** Cost of that data, in cents. */
  diskCostCents: number;
}

/** The share of one disk in the statement of a month. */
export interface StatementDisk {
  /** Name of the disk, which may be deleted now. */
  disk: string;
  /** Id of the team that owns the disk. */
  teamId: string;
  /** Stored data in GB of 2^30 bytes, multiplied by hours. */
  gbHours: number;
  /** Cost in cents: the exact amount, so fractions are normal. */
  costCents: number;
}

/** The share of one sandbox in the statement of a month. */
export interface StatementLine {
  /** Id of the sandbox. */
  sandboxId: string;
  /** Id of the team that owns the sandbox. */
  teamId: string;
  /** Resolved image reference. */
  image: string;
  /** Number of virtual CPUs. */
  vcpus: number;
  /** Memory in MiB. */
  memMiB: number;
  /** Billed time within this month, in milliseconds. */
  billedMs: number;
  /** Cost within this month in cents: the exact amount, so fractions are normal. */
  costCents: number;
}

/** The amount that your organization owes for a month in UTC. Times are ISO 8601 UTC. */
export interface Statement extends StatementSums {
  /** The month, for example `2026-11`. */
  month: string;
  /** Start of the month, inclusive. */
  from: string;
  /** End of the month, exclusive. */
  to: string;
  /** Time of these figures. */
  asOf: string;
  /** True when the statement can no longer change. */
  complete: boolean;
  /** Sums of each team. */
  teams: (StatementSums & { teamId: string })[];
  /** One line for each disk that stored data in the month. */
  disks: StatementDisk[];
  /** One line for each sandbox that ran in the month, ordered by sandbox id. */
  lines: StatementLine[];
}

/** Fetches the usage. Rejects with {@link CoppiceError}. */
export async function fetchUsage(transport: Transport, { signal }: CallOptions): Promise<Usage> {
  const request = { method: 'GET', path: '/v1/usage', idempotent: true, signal } as const;
  return (await transport.callJson(request, parseUsage)).value;
}

/** Lists ended sandboxes. Throws `TypeError` for an invalid `limit`. */
export function listHistory(transport: Transport, options: HistoryOptions): PagedList<HistoryEntry> {
  const { status, labels, from, to, image, limit, signal } = options;
  requireLimit(limit);
  return new PagedList<HistoryEntry>({
    firstQuery: buildQuery({
      status,
      label: formatLabels(labels),
      from: from?.toISOString(),
      to: to?.toISOString(),
      image,
      limit: toPageItems(limit),
    }),
    fetchPage: (query) =>
      fetchPage(transport, { path: '/v1/runs/history', query, signal }, (value) =>
        readArray(value, 'the history', parseHistoryEntry),
      ),
    limit,
  });
}

/** Fetches the statement of a month (`2026-11`) with the lines of all pages. The sums are those of the first page. */
export async function fetchStatement(
  transport: Transport,
  month: string,
  { signal }: CallOptions,
): Promise<Statement> {
  const path = `/v1/statements/${encodeSegment(month, 'the month')}`;
  let statement: Statement | undefined;
  const lines = new PagedList<StatementLine>({
    firstQuery: buildQuery({ limit: STATEMENT_PAGE_LINES }),
    fetchPage: (query) =>
      fetchPage(transport, { path, query, signal }, (value) => {
        const page = parseStatement(value);
        statement ??= page;
        return page.lines;
      }),
  });
  const all = await lines;
  if (statement === undefined) throw new TypeError('the statement has no page');
  return { ...statement, lines: all };
}

function parseUsage(value: unknown): Usage {
  const record = readObject(value, 'the usage record');
  return {
    activeSandboxes: readNumber(record, 'active_sandboxes'),
    historySandboxes: readNumber(record, 'history_sandboxes'),
    activeCostCents: readNumber(record, 'active_cost_cents'),
    historyCostCents: readNumber(record, 'history_cost_cents'),
    totalCostCents: readNumber(record, 'total_cost_cents'),
    cpuSeconds: readNumber(record, 'cpu_seconds'),
    memSeconds: readNumber(record, 'mem_seconds'),
    diskGbHours: readOptionalNumber(record, 'disk_gb_hours') ?? 0,
    diskCostCents: readOptionalNumber(record, 'disk_cost_cents') ?? 0,
    creditCents: readOptionalNumber(record, 'credit_cents'),
    creditLeftCents: readOptionalNumber(record, 'credit_left_cents'),
    asOf: readString(record, 'as_of'),
  };
}

function parseHistoryEntry(value: unknown): HistoryEntry {
  const record = readObject(value, 'the history entry');
  return {
    id: readString(record, 'id'),
    status: readString(record, 'status'),
    statusReason: readOptionalString(record, 'status_reason'),
    teamId: readString(record, 'team_id'),
    image: readString(record, 'image'),
    vcpus: readNumber(record, 'vcpus'),
    memMiB: readNumber(record, 'mem_mib'),
    labels: readStringMap(record, 'labels'),
    createMs: readOptionalNumber(record, 'create_ms'),
    createdAt: readString(record, 'created_at'),
    destroyedAt: readString(record, 'destroyed_at'),
    uptimeMs: readNumber(record, 'uptime_ms'),
    billedMs: readNumber(record, 'billed_ms'),
    cpuMs: readNumber(record, 'cpu_ms'),
    memPeakBytes: readNumber(record, 'mem_peak_bytes'),
    costCents: readNumber(record, 'cost_cents'),
  };
}

function parseStatement(value: unknown): Statement {
  const record = readObject(value, 'the statement');
  return {
    month: readString(record, 'month'),
    from: readString(record, 'from'),
    to: readString(record, 'to'),
    asOf: readString(record, 'as_of'),
    complete: readFlag(record, 'complete'),
    ...parseSums(record),
    teams: readArray(record['teams'], 'the teams', (one) => {
      const team = readObject(one, 'the team');
      return { teamId: readString(team, 'team_id'), ...parseSums(team) };
    }),
    disks: readArray(record['disks'] ?? [], 'the disks', parseDisk),
    lines: readArray(record['lines'], 'the lines', parseLine),
  };
}

function parseSums(record: WireObject): StatementSums {
  return {
    sandboxes: readNumber(record, 'sandboxes'),
    cpuSeconds: readNumber(record, 'cpu_seconds'),
    memSeconds: readNumber(record, 'mem_seconds'),
    costCents: readNumber(record, 'cost_cents'),
    diskGbHours: readOptionalNumber(record, 'disk_gb_hours') ?? 0,
    diskCostCents: readOptionalNumber(record, 'disk_cost_cents') ?? 0,
  };
}

function parseDisk(value: unknown): StatementDisk {
  const line = readObject(value, 'the disk of the statement');
  return {
    disk: readString(line, 'disk'),
    teamId: readString(line, 'team_id'),
    gbHours: readNumber(line, 'gb_hours'),
    costCents: readNumber(line, 'cost_cents'),
  };
}

function parseLine(value: unknown): StatementLine {
  const line = readObject(value, 'the line of the statement');
  return {
    sandboxId: readString(line, 'sandbox_id'),
    teamId: readString(line, 'team_id'),
    image: readString(line, 'image'),
    vcpus: readNumber(line, 'vcpus'),
    memMiB: readNumber(line, 'mem_mib'),
    billedMs: readNumber(line, 'billed_ms'),
    costCents: readNumber(line, 'cost_cents'),
  };
}
