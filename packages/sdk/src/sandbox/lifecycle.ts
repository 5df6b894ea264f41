import { EGRESS_FIELDS, type EgressOptions } from '../egress.ts';
import type { CallOptions } from '../transport/client-options.ts';
import { CoppiceError } from '../transport/errors.ts';
import { postOnce, slowTimeoutMs, type CreateCallOptions } from '../transport/post-once.ts';
import {
  parseDestroyResult,
  parseSandboxInfo,
  type DestroyResult,
  type SandboxInfo,
} from './sandbox-record.ts';
import type { Transport } from '../transport/transport.ts';
import { buildQuery, buildWireBody, encodeSegment } from '../transport/wire.ts';

/** Image of a sandbox when `CreateOptions.image` is left out. */
export const DEFAULT_IMAGE = 'node:22-slim';

/** Settings of a new sandbox. The service uses defaults for those left out. */
export interface CreateOptions extends EgressOptions {
  /**
   * Pinned OCI image reference. The service refuses a reference without a tag, or with the tag `latest`, `lts` or
   * `stable` (code `image_not_pinned`). Default `node:22-slim`.
   */
  image?: string | undefined;
  /**
   * Name of the sandbox, 1–64 characters. No other sandbox of the team may have it until this one ends (code
   * `already_exists`). Default: none.
   */
  name?: string | undefined;
  /** Number of virtual CPUs, 1–32. Default 1. */
  vcpus?: number | undefined;
  /** Memory in MiB, 128–262 144. Default 1024. */
  memMiB?: number | undefined;
  /** Size of the scratch disk in MiB, 64–1 048 576. Disk space is used only as it is written. Default 4096. */
  diskMiB?: number | undefined;
  /**
   * Idle time in seconds (0–2 592 000) after which the sandbox is destroyed, or hibernated with `autoHibernate`. 0
   * means never. Default 300.
   */
  timeout?: number | undefined;
  /** Up to 32 labels of your choice, by which lists can be filtered. Default: none. */
  labels?: Record<string, string> | undefined;
  /** Seconds (1–31 536 000) after which the sandbox is destroyed even if it is in use. Default: no limit. */
  maxLifetime?: number | undefined;
  /**
   * Time at which the sandbox is destroyed even if it is in use: in the future, at most a year ahead. A text is ISO 8601
   * with its offset. Default: none.
   */
  expiresAt?: Date | string | undefined;
  /**
   * If true, the idle sandbox is hibernated instead of destroyed, and resumed by the next call that uses it. Default
   * false.
   */
  autoHibernate?: boolean | undefined;
  /**
   * Environment variables of commands, shells and terminals: up to 256, 32 KiB together. Variables of granted credentials
   * win over these, and the `env` of a command over both. The service stores them encrypted and never returns them.
   */
  env?: Record<string, string> | undefined;
  /**
   * Absolute path where commands, shells and terminals start, and relative paths of files. It must exist when it is used.
   * Default: the working directory of the image.
   */
  cwd?: string | undefined;
  /**
   * Name of the persistent disk that is mounted at `/workspace`. With `forkFromDisk`: name of the new disk; default: the
   * name of the source with a number. Default: no disk.
   */
  disk?: string | undefined;
  /** Name of a disk. The sandbox gets a new disk that is forked from the snapshot `diskSnapshot` of it. */
  forkFromDisk?: string | undefined;
  /** Name of the snapshot of `forkFromDisk`. Required with it. */
  diskSnapshot?: string | undefined;
}

const CREATE_FIELDS = {
  image: 'image',
  name: 'name',
  vcpus: 'vcpus',
  memMiB: 'mem_mib',
  diskMiB: 'disk_mib',
  timeout: 'timeout',
  labels: 'labels',
  maxLifetime: 'max_lifetime',
  expiresAt: 'expires_at',
  autoHibernate: 'auto_hibernate',
  env: 'env',
  cwd: 'cwd',
  disk: 'disk',
  forkFromDisk: 'fork_from_disk',
  diskSnapshot: 'disk_snapshot',
  ...EGRESS_FIELDS,
} as const satisfies Record<keyof CreateOptions, string>;

/** Creates a sandbox. Throws `TypeError` for an unknown option. */
export async function createSandbox(
  transport: Transport,
  options: CreateOptions,
  call: CreateCallOptions,
): Promise<SandboxInfo> {
  const body = buildWireBody({ ...options, image: options.image ?? DEFAULT_IMAGE }, CREATE_FIELDS, 'create');
  return postOnce(transport, { path: '/v1/runs', body, call }, parseSandboxInfo);
}

/** Returns the path of a sandbox below the base URL. Throws `TypeError` for an empty id, `.` or `..`. */
export function sandboxPath(id: string): string {
  return `/v1/runs/${encodeSegment(id, 'the sandbox id')}`;
}

/** Fetches the record of the sandbox at `path`. */
export async function fetchSandbox(
  transport: Transport,
  path: string,
  call: CallOptions,
): Promise<SandboxInfo> {
  const answer = await transport.callJson(
    { method: 'GET', path, idempotent: true, signal: call.signal },
    parseSandboxInfo,
  );
  return answer.value;
}

/** Destroys the sandbox at `path`. */
export async function destroySandbox(
  transport: Transport,
  path: string,
  call: CallOptions,
): Promise<DestroyResult> {
  const answer = await transport.callJson(
    { method: 'DELETE', path, idempotent: true, signal: call.signal },
    parseDestroyResult,
  );
  return answer.value;
}

/** Options of `sandbox.resume()`. */
export interface ResumeOptions extends CallOptions {
  /**
   * `fresh`: the disk of the sandbox is mounted as it is now. Files that programs have open on it are lost. For a
   * sandbox whose disk has changed since the hibernation (code `disk_changed`).
   */
  disk?: 'fresh' | undefined;
}

const STATE_AFTER = { hibernate: 'hibernated', resume: 'running' } as const;

/**
 * Hibernates or resumes the sandbox at `path`. An earlier attempt may have succeeded although the service answered 503.
 * The service then refuses the retry with 409 because the sandbox already has the requested state. This counts as
 * success.
 */
export async function changeState(
  transport: Transport,
  path: string,
  change: keyof typeof STATE_AFTER,
  { disk, ...call }: ResumeOptions,
): Promise<SandboxInfo> {
  let isRetry = false;
  const request = {
    method: 'POST',
    path: `${path}/${change}`,
    query: buildQuery({ disk }),
    idempotent: true,
    signal: call.signal,
    timeoutMs: slowTimeoutMs(transport),
    onRetry: () => (isRetry = true),
  } as const;
  try {
    return (await transport.callJson(request, parseSandboxInfo)).value;
  } catch (error) {
    if (!isRetry || !(error instanceof CoppiceError) || error.status !== 409) throw error;
    const info = await fetchSandbox(transport, path, call);
    if (info.status === STATE_AFTER[change]) return info;
    throw error;
  }
}

/** Rolls the sandbox at `path` back to a snapshot. The service does so once, however often the request is retried. */
export async function rollBack(
  transport: Transport,
  path: string,
  snapshotId: string,
  call: CreateCallOptions,
): Promise<SandboxInfo> {
  const body = { snapshot_id: snapshotId };
  return postOnce(transport, { path: `${path}/rollback`, body, call }, parseSandboxInfo);
}
