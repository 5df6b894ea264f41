import { EGRESS_FIELDS, type EgressOptions } from './egress.ts';
import type { CallOptions } from './transport/client-options.ts';
import { CoppiceError } from './transport/errors.ts';
import { postOnce, slowTimeoutMs, type CreateCallOptions } from './transport/post-once.ts';
import {
  parseDestroyResult,
  parseSandboxInfo,
  type DestroyResult,
  type SandboxInfo,
} from './sandbox-record.ts';
import type { Transport } from './transport/transport.ts';
import { buildWireBody, encodeSegment, requireJsonNumber } from './transport/wire.ts';

/** Image of a sandbox for which none is named. */
export const DEFAULT_IMAGE = 'node:22-slim';

/** What to create. The service fills in what is left out. */
export interface CreateOptions extends EgressOptions {
  /** Pinned OCI image reference; `latest`, `lts`, `stable` and no tag are refused. Default `node:22-slim`. */
  image?: string | undefined;
  /** Default 1. */
  vcpus?: number | undefined;
  /** Memory. Default 1024. */
  memMiB?: number | undefined;
  /** Scratch disk, which grows on write. Default 4096. */
  diskMiB?: number | undefined;
  /** Idle time in seconds after which the sandbox is destroyed, or hibernated; 0 means never. Default 300. */
  timeout?: number | undefined;
  /** Your own marks, to find it again. */
  labels?: Record<string, string> | undefined;
  /** Seconds after which the sandbox ends whatever happens. Default: no such limit. */
  maxLifetime?: number | undefined;
  /** Idle, it is hibernated instead of destroyed, and the next call that uses it resumes it. Default false. */
  autoHibernate?: boolean | undefined;
}

const CREATE_FIELDS = {
  image: 'image',
  vcpus: 'vcpus',
  memMiB: 'mem_mib',
  diskMiB: 'disk_mib',
  timeout: 'timeout',
  labels: 'labels',
  maxLifetime: 'max_lifetime',
  autoHibernate: 'auto_hibernate',
  ...EGRESS_FIELDS,
} as const satisfies Record<keyof CreateOptions, string>;

export async function createSandbox(
  transport: Transport,
  options: CreateOptions,
  call: CreateCallOptions,
): Promise<SandboxInfo> {
  const body = buildWireBody({ ...options, image: options.image ?? DEFAULT_IMAGE }, CREATE_FIELDS, 'create');
  return postOnce(transport, { path: '/v1/runs', body, call }, parseSandboxInfo);
}

/** The address of a sandbox, below the base URL. */
export function sandboxPath(id: string): string {
  return `/v1/runs/${encodeSegment(id, 'the sandbox id')}`;
}

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

export async function setIdleTimeout(
  transport: Transport,
  path: string,
  seconds: number,
  call: CallOptions,
): Promise<SandboxInfo> {
  requireJsonNumber(seconds, 'seconds');
  const answer = await transport.callJson(
    {
      method: 'PATCH',
      path,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ timeout: seconds }),
      idempotent: true,
      signal: call.signal,
    },
    parseSandboxInfo,
  );
  return answer.value;
}

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

const STATE_AFTER = { hibernate: 'hibernated', resume: 'running' } as const;

/**
 * Hibernates or resumes. An earlier try may have done it although it was answered 503; the next one is then refused, as the
 * sandbox has the state already, which is what was asked for.
 */
export async function changeState(
  transport: Transport,
  path: string,
  change: keyof typeof STATE_AFTER,
  call: CallOptions,
): Promise<SandboxInfo> {
  let isRetry = false;
  const request = {
    method: 'POST',
    path: `${path}/${change}`,
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

/** Carried out once, however often it is tried. */
export async function rollBack(
  transport: Transport,
  path: string,
  snapshotId: string,
  call: CreateCallOptions,
): Promise<SandboxInfo> {
  const body = { snapshot_id: snapshotId };
  return postOnce(transport, { path: `${path}/rollback`, body, call }, parseSandboxInfo);
}
