import type { CallOptions } from './client-options.ts';
import {
  parseDestroyResult,
  parseSandboxInfo,
  type DestroyResult,
  type SandboxInfo,
} from './sandbox-record.ts';
import type { Transport } from './transport.ts';
import { buildWireBody, encodeSegment, requireJsonNumber } from './wire.ts';

/** Image of a sandbox for which none is named. */
export const DEFAULT_IMAGE = 'node:22-slim';

/**
 * An image that is new to the machine is pulled and prepared first. Below the 300 s after which Node's fetch gives
 * up waiting for headers, so that the error is the client's own.
 */
export const PREPARE_TIMEOUT_MS = 290_000;

/** What to create. The service fills in what is left out. */
export interface CreateOptions {
  /** Pinned OCI image reference; `latest`, `lts`, `stable` and no tag are refused. Default `node:22-slim`. */
  image?: string | undefined;
  /** Default 1. */
  vcpus?: number | undefined;
  /** Memory. Default 1024. */
  memMiB?: number | undefined;
  /** Scratch disk, which grows on write. Default 4096. */
  diskMiB?: number | undefined;
  /** Idle time in seconds after which the sandbox destroys itself; 0 means never. Default 300. */
  timeout?: number | undefined;
  /** Your own marks, to find it again. */
  labels?: Record<string, string> | undefined;
  /** Seconds after which the sandbox ends whatever happens. Default: no such limit. */
  maxLifetime?: number | undefined;
}

/** How to make the create call. */
export interface CreateCallOptions extends CallOptions {
  /**
   * Calls with the same key and the same options make one sandbox only, for 24 hours. Default: a new key for each
   * call, which covers the client's own retries. Give one to repeat a call whose answer was lost.
   */
  idempotencyKey?: string | undefined;
}

const CREATE_FIELDS = {
  image: 'image',
  vcpus: 'vcpus',
  memMiB: 'mem_mib',
  diskMiB: 'disk_mib',
  timeout: 'timeout',
  labels: 'labels',
  maxLifetime: 'max_lifetime',
} as const satisfies Record<keyof CreateOptions, string>;

export async function createSandbox(
  transport: Transport,
  options: CreateOptions,
  call: CreateCallOptions,
): Promise<SandboxInfo> {
  const body = buildWireBody({ ...options, image: options.image ?? DEFAULT_IMAGE }, CREATE_FIELDS, 'create');
  const answer = await transport.callJson(
    {
      method: 'POST',
      path: '/v1/runs',
      headers: {
        'content-type': 'application/json',
        'idempotency-key': call.idempotencyKey ?? generateIdempotencyKey(),
      },
      body: JSON.stringify(body),
      idempotent: true,
      signal: call.signal,
      timeoutMs: Math.max(transport.timeoutMs, PREPARE_TIMEOUT_MS),
    },
    parseSandboxInfo,
  );
  return answer.value;
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

/** 128 random bits; `crypto.randomUUID` is missing on web pages without TLS. */
function generateIdempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
