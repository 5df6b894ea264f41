/**
 * Calls of the runner about persistent disks (lib/protocol/disk-protocol.ts). All of them may be repeated: the ids,
 * which control has chosen, identify what they make.
 */
import type { Readable } from 'node:stream';
import { AppError } from '@coppice/contract';
import {
  CollectedDisks,
  DiskState,
  DiskVersion,
  StoredDisk,
  type DiskFormat,
  type ExportDisk,
  type ForkDisk,
  type GrowDisk,
  type ImportDisk,
  type NewDisk,
  type TakeSnapshot,
} from '../../lib/protocol/disk-protocol.ts';
import type { z } from 'zod';
import {
  get,
  send,
  type RunnerAnswer,
  type RunnerConnection,
  type RunnerRequest,
} from './runner-connection.ts';

const REMOVE_DEADLINE_MS = 60_000;
const STORED_DEADLINE_MS = 60_000;
const COLLECT_DEADLINE_MS = 900_000;
const EXPORT_HEAD_DEADLINE_MS = 60_000;

/** A disk as the runner knows it. */
export interface DiskAddress {
  organization: string;
  disk: string;
}

export interface DiskImport {
  format: DiskFormat;
  /** The largest size that the disk may get. */
  maxBytes: number;
  content: Readable;
  /** Deadline for the whole import, up to the answer. */
  deadlineMs: number;
  signal: AbortSignal;
}

export class RunnerDisks {
  readonly #connection: RunnerConnection;

  constructor(connection: RunnerConnection) {
    this.#connection = connection;
  }

  /** Creates a disk with an empty file system. */
  create(address: DiskAddress, sizeBytes: number, deadlineMs: number): Promise<DiskState> {
    const body: z.infer<typeof NewDisk> = { size_bytes: sizeBytes };
    return this.#change(send('PUT', diskPath(address), body, deadlineMs), DiskState);
  }

  /** Throws `not_found` if the object store has no such disk. */
  get(address: DiskAddress): Promise<DiskState> {
    return this.#connection.callJson(get(diskPath(address)), DiskState);
  }

  /** Removes a disk with its snapshots. Idempotent. Throws `disk_in_use` or `disk_has_forks`. */
  remove(address: DiskAddress): Promise<void> {
    return this.#remove(diskPath(address));
  }

  measure(address: DiskAddress): Promise<z.infer<typeof StoredDisk>> {
    return this.#connection.callJson(
      { ...get(`${diskPath(address)}/stored`), headDeadlineMs: STORED_DEADLINE_MS },
      StoredDisk,
    );
  }

  snapshot(address: DiskAddress, body: TakeSnapshot, deadlineMs: number): Promise<DiskVersion> {
    return this.#change(send('POST', `${diskPath(address)}/snapshots`, body, deadlineMs), DiskVersion);
  }

  /** Idempotent. */
  removeSnapshot(address: DiskAddress, version: number): Promise<void> {
    return this.#remove(`${diskPath(address)}/snapshots/${version}`);
  }

  /** Makes a disk from a version of another one. Returns the state of the new disk. */
  fork(address: DiskAddress, body: z.infer<typeof ForkDisk>, deadlineMs: number): Promise<DiskState> {
    return this.#change(send('POST', `${diskPath(address)}/fork`, body, deadlineMs), DiskState);
  }

  /** Resolves when everything that was written before is in the object store. */
  flush(address: DiskAddress, deadlineMs: number): Promise<DiskState> {
    return this.#change(send('POST', `${diskPath(address)}/flush`, {}, deadlineMs), DiskState);
  }

  grow(address: DiskAddress, sizeBytes: number, deadlineMs: number): Promise<DiskState> {
    const body: z.infer<typeof GrowDisk> = { size_bytes: sizeBytes };
    return this.#change(send('POST', `${diskPath(address)}/grow`, body, deadlineMs), DiskState);
  }

  /** Makes a disk from the content, whose size it gets. Throws `payload_too_large` if that is more than allowed. */
  import(
    address: DiskAddress,
    { format, maxBytes, content, deadlineMs, signal }: DiskImport,
  ): Promise<DiskState> {
    const query = { format, max_bytes: String(maxBytes) } satisfies Record<keyof ImportDisk, string>;
    const request: RunnerRequest = {
      method: 'POST',
      path: `${diskPath(address)}/import?${new URLSearchParams(query).toString()}`,
      headers: { 'content-type': 'application/octet-stream' },
      body: content,
      headDeadlineMs: deadlineMs,
      signal,
    };
    return this.#connection.callJson(request, DiskState);
  }

  /** Returns an answer with the content as its stream. */
  export(address: DiskAddress, version: number, format: DiskFormat): Promise<RunnerAnswer> {
    const query = { version: String(version), format } satisfies Record<keyof ExportDisk, string>;
    const path = `${diskPath(address)}/export?${new URLSearchParams(query).toString()}`;
    return this.#connection.request({ method: 'GET', path, headDeadlineMs: EXPORT_HEAD_DEADLINE_MS });
  }

  /** Deletes objects of the organization that no disk refers to. */
  collect(organization: string): Promise<z.infer<typeof CollectedDisks>> {
    const path = `/disks/${encodeURIComponent(organization)}/collect`;
    return this.#change(
      { ...send('POST', path, {}, COLLECT_DEADLINE_MS), isBackground: true },
      CollectedDisks,
    );
  }

  #change<T>(request: RunnerRequest, schema: z.ZodType<T>): Promise<T> {
    return this.#connection.callJson({ ...request, isRepeatable: true }, schema);
  }

  async #remove(path: string): Promise<void> {
    try {
      await this.#connection.callBytes({ method: 'DELETE', path, headDeadlineMs: REMOVE_DEADLINE_MS });
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'not_found')) throw error;
    }
  }
}

function diskPath({ organization, disk }: DiskAddress): string {
  return `/disks/${encodeURIComponent(organization)}/${encodeURIComponent(disk)}`;
}
