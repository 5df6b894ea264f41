import type { CallOptions } from '../transport/client-options.ts';
import { nullIfMissing } from '../transport/errors.ts';
import { EGRESS_FIELDS, type EgressOptions } from '../egress.ts';
import { postOnce, type CreateCallOptions } from '../transport/post-once.ts';
import { fetchPage, PagedList, requireLimit, toPageItems } from '../transport/paged-list.ts';
import { parseSandboxInfo, type SandboxInfo } from './sandbox-record.ts';
import type { Transport } from '../transport/transport.ts';
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
} from '../transport/wire.ts';

/** A saved sandbox: its memory, its processes and its disk. The service keeps it until it expires or is deleted. */
export interface SnapshotInfo {
  /** Id of the snapshot, for example `snap0123456789abcdef0123`. */
  id: string;
  /** Id of the sandbox that was saved. */
  runId: string;
  /** Name that the caller chose. Null if there is none. */
  name: string | null;
  /** Resolved image reference. */
  image: string;
  /** Number of virtual CPUs. */
  vcpus: number;
  /** Memory in MiB. */
  memMiB: number;
  /** Size of the scratch disk in MiB. */
  diskMiB: number;
  /** Size on disk in bytes, including the parts that it shares with others. */
  sizeBytes: number;
  /** Properties that a machine needs to restore the snapshot, for example versions of QEMU and of the kernel. */
  boundTo: Record<string, string>;
  /** Time of the snapshot, ISO 8601 UTC. */
  createdAt: string;
  /** Time when the service deletes the snapshot, ISO 8601 UTC. Null means never. */
  expiresAt: string | null;
  /** The persistent disk of the sandbox, and the version that the snapshot keeps. Null if there was none. */
  disk: { name: string; version: number; sizeGb: number } | null;
}

/** Options of `sandbox.snapshot()`. */
export interface SnapshotOptions extends CreateCallOptions {
  /** Name for people. It need not be unique. */
  name?: string | undefined;
  /** Seconds (1–315 360 000) after which the service deletes the snapshot. Not with `expiresAt`. Default: never. */
  expiresIn?: number | undefined;
  /**
   * Time when the service deletes the snapshot: in the future, at most ten years ahead. A text is ISO 8601 with its
   * offset.
   */
  expiresAt?: Date | string | undefined;
}

/** Changes of a snapshot. Those left out keep their values. */
export interface SnapshotChanges {
  /** Name for people. Null removes it. */
  name?: string | null | undefined;
  /** Time when the service deletes the snapshot, as in {@link SnapshotOptions}. Null means never. */
  expiresAt?: Date | string | null | undefined;
}

/**
 * Settings of a restored sandbox. Those left out have the values that the snapshot's sandbox had when it was saved,
 * except name, end and credentials: a restored sandbox has only those given here.
 */
export interface RestoreOptions extends EgressOptions {
  /**
   * Name of the new sandbox, 1–64 characters. No other sandbox of the team may have it (code `already_exists`).
   */
  name?: string | undefined;
  /**
   * Idle time in seconds (0–2 592 000) after which the sandbox is destroyed, or hibernated with `autoHibernate`. 0
   * means never.
   */
  timeout?: number | undefined;
  /** All labels of the new sandbox: they replace those of the snapshot's sandbox. */
  labels?: Record<string, string> | undefined;
  /** Seconds (1–31 536 000) after which the sandbox is destroyed even if it is in use. Null means no limit. */
  maxLifetime?: number | null | undefined;
  /**
   * Time at which the sandbox is destroyed even if it is in use: in the future, at most a year ahead. A text is ISO 8601
   * with its offset. Default: none.
   */
  expiresAt?: Date | string | undefined;
  /** If true, the idle sandbox is hibernated instead of destroyed, and resumed by the next call that uses it. */
  autoHibernate?: boolean | undefined;
  /** All environment variables of the new sandbox, as in a create: they replace those of the snapshot's sandbox. */
  env?: Record<string, string> | undefined;
  /** Where its processes start, as in a create. Null means the working directory of the image. */
  cwd?: string | null | undefined;
  /**
   * If the snapshot's sandbox had a disk: name of the new disk, which is forked from the disk of that moment. Default:
   * the name of that disk with a number.
   */
  disk?: string | undefined;
}

/** Filters for a list of snapshots. */
export interface ListSnapshotsOptions extends CallOptions {
  /** Lists only snapshots of the sandbox with this id. */
  runId?: string | undefined;
  /** Maximum number of snapshots over all pages, an integer above 0. Default: no limit. */
  limit?: number | undefined;
}

const SNAPSHOT_FIELDS = {
  name: 'name',
  expiresIn: 'expires_in',
  expiresAt: 'expires_at',
} as const satisfies Record<Exclude<keyof SnapshotOptions, keyof CreateCallOptions>, string>;

const CHANGE_FIELDS = { name: 'name', expiresAt: 'expires_at' } as const satisfies Record<
  keyof SnapshotChanges,
  string
>;

const RESTORE_FIELDS = {
  name: 'name',
  timeout: 'timeout',
  labels: 'labels',
  maxLifetime: 'max_lifetime',
  expiresAt: 'expires_at',
  autoHibernate: 'auto_hibernate',
  env: 'env',
  cwd: 'cwd',
  disk: 'disk',
  ...EGRESS_FIELDS,
} as const satisfies Record<keyof RestoreOptions, string>;

/** The snapshots of your organization. Available as `client.snapshots`. Calls reject with {@link CoppiceError}. */
export class Snapshots {
  readonly #transport: Transport;

  /** Called by {@link Coppice} only. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Lists snapshots, newest first. Await the list for all of them, or iterate over it. Throws `TypeError` for an
   * invalid `limit`.
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
   * Fetches a snapshot. Resolves with null when there is none, or when it has expired.
   *
   * @example
   * const snapshot = await client.snapshots.get('snap0123456789abcdef0123');
   */
  async get(id: string, options: CallOptions = {}): Promise<SnapshotInfo | null> {
    const path = snapshotPath(id);
    const { signal } = options;
    const answer = await nullIfMissing(
      this.#transport.callJson({ method: 'GET', path, idempotent: true, signal }, parseSnapshotInfo),
    );
    return answer && answer.value;
  }

  /**
   * Changes the name of a snapshot, and when it expires. Rejects with code `not_found` when there is no such snapshot.
   *
   * @example
   * await client.snapshots.update(snapshot.id, { expiresAt: new Date(Date.now() + 7 * 86_400_000) });
   */
  async update(id: string, changes: SnapshotChanges, options: CallOptions = {}): Promise<SnapshotInfo> {
    const answer = await this.#transport.callJson(
      {
        method: 'PATCH',
        path: snapshotPath(id),
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(buildWireBody(changes, CHANGE_FIELDS, 'update')),
        idempotent: true,
        signal: options.signal,
      },
      parseSnapshotInfo,
    );
    return answer.value;
  }

  /**
   * Deletes a snapshot. Sandboxes that were restored from it continue to run. Rejects with code `not_found` when there
   * is no such snapshot.
   *
   * @example
   * await client.snapshots.delete('snap0123456789abcdef0123');
   */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.callEmpty({
      method: 'DELETE',
      path: snapshotPath(id),
      idempotent: true,
      signal: options.signal,
    });
  }
}

function snapshotPath(id: string): string {
  return `/v1/snapshots/${encodeSegment(id, 'the snapshot id')}`;
}

/** Takes a snapshot of the sandbox at `sandboxPath`. Throws `TypeError` for an unknown option. */
export async function takeSnapshot(
  transport: Transport,
  sandboxPath: string,
  { signal, idempotencyKey, ...options }: SnapshotOptions,
): Promise<SnapshotInfo> {
  const body = buildWireBody(options, SNAPSHOT_FIELDS, 'snapshot');
  const request = { path: `${sandboxPath}/snapshot`, body, call: { signal, idempotencyKey } };
  return postOnce(transport, request, parseSnapshotInfo);
}

/** Creates a sandbox from a snapshot. Throws `TypeError` for an unknown option. */
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
    expiresAt: readOptionalString(record, 'expires_at'),
    disk: record['disk'] === undefined || record['disk'] === null ? null : parseDisk(record['disk']),
  };
}

function parseDisk(value: unknown): NonNullable<SnapshotInfo['disk']> {
  const disk = readObject(value, 'the disk of the snapshot');
  return {
    name: readString(disk, 'name'),
    version: readNumber(disk, 'version'),
    sizeGb: readNumber(disk, 'size_gb'),
  };
}
