import type { CallOptions } from './transport/client-options.ts';
import { nullIfMissing } from './transport/errors.ts';
import { fetchPage, PagedList, requireLimit, toPageItems } from './transport/paged-list.ts';
import { postOnce, slowTimeoutMs, type CreateCallOptions } from './transport/post-once.ts';
import type { CallRequest, Transport } from './transport/transport.ts';
import { sendContent, type FileContent } from './transport/upload.ts';
import {
  buildQuery,
  buildWireBody,
  encodeSegment,
  readArray,
  readNumber,
  readObject,
  readOptionalString,
  readString,
  requireJsonNumber,
} from './transport/wire.ts';

/** `local`: a flush in the sandbox waits for the disk of the host. */
export type DiskDurability = 'local' | (string & Record<never, never>);

/** A persistent disk. Times are ISO 8601 UTC; a GB has 2^30 bytes. */
export interface DiskInfo {
  /** Name of the disk. */
  name: string;
  /** Id of the team that owns the disk: the team of the key that created it. */
  teamId: string;
  /**
   * `available`: a sandbox can attach it. `attached`: the sandbox `attachedTo` has it. `detaching`: that sandbox no
   * longer uses it, but what it wrote is still being stored. A newer service may have more states.
   */
  status: string;
  /** Size in GB. */
  sizeGb: number;
  /** Bytes in the object store that only this disk and its snapshots use, as billed. Measured every hour. */
  storedBytes: number;
  /** Id of the sandbox that has the disk. Null if it is available. */
  attachedTo: string | null;
  /** Name of the disk from which this one was forked. Null if there is none. */
  parent: string | null;
  /** When a flush in the sandbox returns. */
  durability: DiskDurability;
  /** Number of the newest version in the object store. */
  drainedVersion: number;
  /** Bytes that are only on the host so far. */
  dirtyBytes: number;
  /** Time when the newest version was stored. */
  drainedAt: string;
  /** Why storing does not proceed. Null while it does. */
  waitsFor: string | null;
  /** Time of the create. */
  createdAt: string;
}

/** A snapshot of a disk. */
export interface DiskSnapshotInfo {
  /** Name of the snapshot, unique for the disk. */
  name: string;
  /** Name of the disk. */
  disk: string;
  /** Size of the disk at that moment, in GB of 2^30 bytes. */
  sizeGb: number;
  /** Number of the version that the snapshot keeps. */
  version: number;
  /** Time of the snapshot, ISO 8601 UTC. */
  createdAt: string;
}

/** Settings of a new disk. */
export interface CreateDiskOptions {
  /** 1–30 lower-case letters, digits and hyphens, beginning with a letter or a digit. */
  name: string;
  /** Size in whole GB of 2^30 bytes. Space is used only as it is written. */
  sizeGb: number;
}

/** Settings of a snapshot of a disk. */
export interface SnapshotDiskOptions {
  /** Name of the snapshot, formed like that of a disk. */
  name: string;
  /** If true, the file system of the attached sandbox is written out first. Default false. */
  sync?: boolean | undefined;
}

/** Settings of a fork of a disk. */
export interface ForkDiskOptions {
  /** Name of the snapshot that is forked. */
  snapshot: string;
  /** Name of the new disk. */
  name: string;
}

/** Options of lists of disks and of their snapshots. */
export interface ListDisksOptions extends CallOptions {
  /** Maximum number over all pages, an integer above 0. Default: no limit. */
  limit?: number | undefined;
}

/** Format of a disk image. */
export type DiskImageFormat = 'raw' | 'qcow2';

/** Options of an import of a disk image. */
export interface ImportDiskOptions extends CallOptions {
  /** Format of the content. Default `raw`. */
  format?: DiskImageFormat | undefined;
}

/** Options of an export of a disk. */
export interface ExportDiskOptions extends ImportDiskOptions {
  /** Name of the snapshot that is read. Default: the newest version in the object store. */
  snapshot?: string | undefined;
}

const CREATE_FIELDS = {
  name: 'name',
  sizeGb: 'size_gb',
} as const satisfies Record<keyof CreateDiskOptions, string>;
const SNAPSHOT_FIELDS = { name: 'name', sync: 'sync' } as const satisfies Record<
  keyof SnapshotDiskOptions,
  string
>;
const FORK_FIELDS = { snapshot: 'snapshot', name: 'name' } as const satisfies Record<
  keyof ForkDiskOptions,
  string
>;

const DISKS = '/v1/disks';
const JSON_HEADERS = { 'content-type': 'application/json' };

/** Creates a disk. Throws `TypeError` for an unknown option. */
export async function createDisk(
  transport: Transport,
  options: CreateDiskOptions,
  call: CreateCallOptions,
): Promise<DiskInfo> {
  const body = buildWireBody(options, CREATE_FIELDS, 'createDisk');
  return postOnce(transport, { path: DISKS, body, call }, parseDisk);
}

/** Fetches a disk. Resolves with null if there is none. */
export async function findDisk(
  transport: Transport,
  name: string,
  { signal }: CallOptions,
): Promise<DiskInfo | null> {
  const request = { method: 'GET', path: diskPath(name), idempotent: true, signal } as const;
  return nullIfMissing(callDisk(transport, request));
}

export function listDisks(transport: Transport, options: ListDisksOptions): PagedList<DiskInfo> {
  return listFrom(transport, options, { path: DISKS, parse: parseDisk, what: 'the list of disks' });
}

/** Grows a disk. Throws `TypeError` for NaN and infinity. */
export async function growDisk(
  transport: Transport,
  name: string,
  sizeGb: number,
  { signal }: CallOptions,
): Promise<DiskInfo> {
  requireJsonNumber(sizeGb, 'sizeGb');
  return callDisk(transport, {
    method: 'PATCH',
    path: diskPath(name),
    headers: JSON_HEADERS,
    body: JSON.stringify({ size_gb: sizeGb }),
    idempotent: true,
    signal,
    timeoutMs: slowTimeoutMs(transport),
  });
}

export async function flushDisk(
  transport: Transport,
  name: string,
  { signal }: CallOptions,
): Promise<DiskInfo> {
  return callDisk(transport, {
    method: 'POST',
    path: `${diskPath(name)}/flush`,
    idempotent: true,
    signal,
    timeoutMs: slowTimeoutMs(transport),
  });
}

export async function deleteDisk(transport: Transport, name: string, call: CallOptions): Promise<void> {
  await transport.callEmpty({
    method: 'DELETE',
    path: diskPath(name),
    idempotent: true,
    signal: call.signal,
  });
}

/** Takes a snapshot of a disk. Throws `TypeError` for an unknown option. */
export async function snapshotDisk(
  transport: Transport,
  { disk, options }: { disk: string; options: SnapshotDiskOptions },
  call: CreateCallOptions,
): Promise<DiskSnapshotInfo> {
  const body = buildWireBody(options, SNAPSHOT_FIELDS, 'snapshotDisk');
  return postOnce(transport, { path: `${diskPath(disk)}/snapshots`, body, call }, parseSnapshot);
}

export function listDiskSnapshots(
  transport: Transport,
  disk: string,
  options: ListDisksOptions,
): PagedList<DiskSnapshotInfo> {
  const path = `${diskPath(disk)}/snapshots`;
  return listFrom(transport, options, { path, parse: parseSnapshot, what: 'the list of snapshots' });
}

export async function deleteDiskSnapshot(
  transport: Transport,
  { disk, snapshot }: { disk: string; snapshot: string },
  { signal }: CallOptions,
): Promise<void> {
  const path = `${diskPath(disk)}/snapshots/${encodeSegment(snapshot, 'the name of the snapshot')}`;
  await transport.callEmpty({ method: 'DELETE', path, idempotent: true, signal });
}

/** Forks a disk. Throws `TypeError` for an unknown option. */
export async function forkDisk(
  transport: Transport,
  { disk, options }: { disk: string; options: ForkDiskOptions },
  call: CreateCallOptions,
): Promise<DiskInfo> {
  const body = buildWireBody(options, FORK_FIELDS, 'forkDisk');
  return postOnce(transport, { path: `${diskPath(disk)}/fork`, body, call }, parseDisk);
}

/** Makes a disk from an image. */
export async function importDisk(
  transport: Transport,
  { name, content }: { name: string; content: FileContent },
  { format, signal }: ImportDiskOptions,
): Promise<DiskInfo> {
  const request = {
    method: 'PUT',
    path: `${diskPath(name)}/content`,
    query: buildQuery({ format }),
    // A second attempt would find the disk that the first one has made.
    idempotent: false,
    signal,
    timeoutMs: slowTimeoutMs(transport),
  } as const;
  return sendContent(transport, request, { content, parse: parseDisk });
}

/** Reads a disk as an image. */
export async function exportDisk(
  transport: Transport,
  name: string,
  { format, snapshot, signal }: ExportDiskOptions,
): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
  return transport.callStream({
    method: 'GET',
    path: `${diskPath(name)}/content`,
    query: buildQuery({ format, snapshot }),
    idempotent: true,
    signal,
  });
}

async function callDisk(transport: Transport, request: CallRequest): Promise<DiskInfo> {
  return (await transport.callJson(request, parseDisk)).value;
}

interface Listed<Item> {
  path: string;
  parse: (value: unknown) => Item;
  what: string;
}

function listFrom<Item>(
  transport: Transport,
  { limit, signal }: ListDisksOptions,
  { path, parse, what }: Listed<Item>,
): PagedList<Item> {
  requireLimit(limit);
  return new PagedList<Item>({
    firstQuery: buildQuery({ limit: toPageItems(limit) }),
    fetchPage: (query) =>
      fetchPage(transport, { path, query, signal }, (value) => readArray(value, what, parse)),
    limit,
  });
}

function diskPath(name: string): string {
  return `${DISKS}/${encodeSegment(name, 'the name of the disk')}`;
}

function parseDisk(value: unknown): DiskInfo {
  const record = readObject(value, 'the disk record');
  return {
    name: readString(record, 'name'),
    teamId: readString(record, 'team_id'),
    status: readString(record, 'status'),
    sizeGb: readNumber(record, 'size_gb'),
    storedBytes: readNumber(record, 'stored_bytes'),
    attachedTo: readOptionalString(record, 'attached_to'),
    parent: readOptionalString(record, 'parent'),
    durability: readString(record, 'durability'),
    drainedVersion: readNumber(record, 'drained_version'),
    dirtyBytes: readNumber(record, 'dirty_bytes'),
    drainedAt: readString(record, 'drained_at'),
    waitsFor: readOptionalString(record, 'waits_for'),
    createdAt: readString(record, 'created_at'),
  };
}

function parseSnapshot(value: unknown): DiskSnapshotInfo {
  const record = readObject(value, 'the snapshot record');
  return {
    name: readString(record, 'name'),
    disk: readString(record, 'disk'),
    sizeGb: readNumber(record, 'size_gb'),
    version: readNumber(record, 'version'),
    createdAt: readString(record, 'created_at'),
  };
}
