import type { CallOptions } from './transport/client-options.ts';
import { EGRESS_FIELDS, type EgressOptions } from './egress.ts';
import { postOnce, type CreateCallOptions } from './transport/post-once.ts';
import { fetchPage, PagedList, requireLimit, toPageItems } from './transport/paged-list.ts';
import { parseSandboxInfo, type SandboxInfo } from './sandbox-record.ts';
import type { Transport } from './transport/transport.ts';
import {
  buildQuery,
  buildWireBody,
  encodeSegment,
  readArray,
  readNumber,
  readObject,
  readOptionalString,
  readString,
  readStringMap,
} from './transport/wire.ts';

/** A saved sandbox: its memory, its processes and its disk, until it is deleted. */
export interface SnapshotInfo {
  id: string;
  /** The sandbox that it was taken of. */
  runId: string;
  name: string | null;
  /** Resolved image reference. */
  image: string;
  vcpus: number;
  memMiB: number;
  diskMiB: number;
  /** On disk; what it shares with others is counted, too. */
  sizeBytes: number;
  /** What a machine must have to restore it: versions of QEMU, kernel and the like. */
  boundTo: Record<string, string>;
  /** ISO 8601 UTC. */
  createdAt: string;
}

/** How to take a snapshot. */
export interface SnapshotOptions extends CreateCallOptions {
  /** For people; need not be unique. */
  name?: string | undefined;
}

/** What is to be other than in the sandbox that the snapshot was taken of. Credentials are not taken over. */
export interface RestoreOptions extends EgressOptions {
  /** Idle time in seconds after which the sandbox is destroyed, or hibernated; 0 means never. */
  timeout?: number | undefined;
  /** All labels: none is taken over. */
  labels?: Record<string, string> | undefined;
  /** Seconds after which the sandbox ends whatever happens; null for no such limit. */
  maxLifetime?: number | null | undefined;
  /** Idle, it is hibernated instead of destroyed, and the next call that uses it resumes it. */
  autoHibernate?: boolean | undefined;
}

/** Which snapshots to list. */
export interface ListSnapshotsOptions extends CallOptions {
  /** Only those of this sandbox. */
  runId?: string | undefined;
  /** At most this many in all. Default: every one. */
  limit?: number | undefined;
}

const SNAPSHOT_FIELDS = { name: 'name' } as const satisfies Record<
  Exclude<keyof SnapshotOptions, keyof CreateCallOptions>,
  string
>;

const RESTORE_FIELDS = {
  timeout: 'timeout',
  labels: 'labels',
  maxLifetime: 'max_lifetime',
  autoHibernate: 'auto_hibernate',
  ...EGRESS_FIELDS,
} as const satisfies Record<keyof RestoreOptions, string>;

/** The snapshots of your organization. Reached as `client.snapshots`. */
export class Snapshots {
  readonly #transport: Transport;

  /** Made by {@link Coppice}. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Lists snapshots, newest first: await it for all, or iterate.
   *
   * @example
   * for await (const { id, name, sizeBytes } of client.snapshots.list()) console.log(id, name, sizeBytes);
   */
  list(options: ListSnapshotsOptions = {}): PagedList<SnapshotInfo> {
    const { runId, limit, signal } = options;
    requireLimit(limit);
    return new PagedList<SnapshotInfo>({
      firstQuery: buildQuery({ run_id: runId, limit: toPageItems(limit) }),
      fetchPage: (query) =>
        fetchPage(this.#transport, { path: '/v1/snapshots', query, signal }, (value) =>
          readArray(value, 'the list of snapshots', parseSnapshotInfo),
        ),
      limit,
    });
  }

  /**
   * Deletes a snapshot; sandboxes that were restored from it live on. Rejects with `not_found` when there is none.
   *
   * @example
   * await client.snapshots.delete('snap0123456789abcdef0123');
   */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.callEmpty({
      method: 'DELETE',
      path: `/v1/snapshots/${encodeSegment(id, 'the snapshot id')}`,
      idempotent: true,
      signal: options.signal,
    });
  }
}

export async function takeSnapshot(
  transport: Transport,
  sandboxPath: string,
  { signal, idempotencyKey, ...options }: SnapshotOptions,
): Promise<SnapshotInfo> {
  const body = buildWireBody(options, SNAPSHOT_FIELDS, 'snapshot');
  const request = { path: `${sandboxPath}/snapshot`, body, call: { signal, idempotencyKey } };
  return postOnce(transport, request, parseSnapshotInfo);
}

export async function restoreSandbox(
  transport: Transport,
  snapshotId: string,
  options: RestoreOptions,
  call: CreateCallOptions,
): Promise<SandboxInfo> {
  const body = { ...buildWireBody(options, RESTORE_FIELDS, 'restore'), snapshot_id: snapshotId };
  return postOnce(transport, { path: '/v1/runs/restore', body, call }, parseSandboxInfo);
}

function parseSnapshotInfo(value: unknown): SnapshotInfo {
  const record = readObject(value, 'the snapshot record');
  return {
    id: readString(record, 'id'),
    runId: readString(record, 'run_id'),
    name: readOptionalString(record, 'name'),
    image: readString(record, 'image'),
    vcpus: readNumber(record, 'vcpus'),
    memMiB: readNumber(record, 'mem_mib'),
    diskMiB: readNumber(record, 'disk_mib'),
    sizeBytes: readNumber(record, 'size_bytes'),
    boundTo: readStringMap(record, 'bound_to'),
    createdAt: readString(record, 'created_at'),
  };
}
