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

/** What your organization has used and what it costs, up to now. Amounts are exact; fractions of cents are normal. */
export interface Usage {
  /** Creating, running or hibernated. */
  activeSandboxes: number;
  /** Destroyed or failed. */
  historySandboxes: number;
  activeCostCents: number;
  historyCostCents: number;
  totalCostCents: number;
  /** vCPU-seconds of billed time. */
  cpuSeconds: number;
  /** GiB-seconds of billed time. */
  memSeconds: number;
  /** All credit that was ever granted; null where there is no such thing as credit. */
  creditCents: number | null;
  /** What is left of it; below 0 when it is exhausted. */
  creditLeftCents: number | null;
  /** ISO 8601 UTC. */
  asOf: string;
}

/** A sandbox that has ended. Times are ISO 8601 UTC. */
export interface HistoryEntry {
  id: string;
  status: string;
  statusReason: string | null;
  /** Of the key that made it. */
  teamId: string;
  image: string;
  vcpus: number;
  memMiB: number;
  labels: Record<string, string>;
  /** Null if an earlier version of the service billed a create that did not finish. */
  createMs: number | null;
  createdAt: string;
  destroyedAt: string;
  uptimeMs: number;
  /** Uptime without hibernation: what the cost is computed from. */
  billedMs: number;
  cpuMs: number;
  memPeakBytes: number;
  costCents: number;
}

/** Which ended sandboxes to list. */
export interface HistoryOptions extends CallOptions {
  /** Only `destroyed` or only `failed` ones. */
  status?: string | undefined;
  /** Only those that have all these labels. */
  labels?: Record<string, string> | undefined;
  /** Only those that ended then or later. */
  from?: Date | undefined;
  /** Only those that ended before. */
  to?: Date | undefined;
  /** Only those of this image, as it is given to a create, or resolved. */
  image?: string | undefined;
  /** At most this many in all. Default: every one. */
  limit?: number | undefined;
}

/** Sums over sandboxes in one month. */
export interface StatementSums {
  sandboxes: number;
  cpuSeconds: number;
  memSeconds: number;
  costCents: number;
}

/** What one sandbox ran in the month. */
export interface StatementLine {
  sandboxId: string;
  teamId: string;
  image: string;
  vcpus: number;
  memMiB: number;
  billedMs: number;
  costCents: number;
}

/** What your organization owes for a month in UTC. */
export interface Statement extends StatementSums {
  /** Such as `2026-11`. */
  month: string;
  from: string;
  /** Not included. */
  to: string;
  asOf: string;
  /** True when nothing of it can change any more. */
  complete: boolean;
  teams: (StatementSums & { teamId: string })[];
  lines: StatementLine[];
}

export async function fetchUsage(transport: Transport, { signal }: CallOptions): Promise<Usage> {
  const request = { method: 'GET', path: '/v1/usage', idempotent: true, signal } as const;
  return (await transport.callJson(request, parseUsage)).value;
}

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

/** With all its lines; the sums are those of the first page's moment. */
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
    lines: readArray(record['lines'], 'the lines', parseLine),
  };
}

function parseSums(record: WireObject): StatementSums {
  return {
    sandboxes: readNumber(record, 'sandboxes'),
    cpuSeconds: readNumber(record, 'cpu_seconds'),
    memSeconds: readNumber(record, 'mem_seconds'),
    costCents: readNumber(record, 'cost_cents'),
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
