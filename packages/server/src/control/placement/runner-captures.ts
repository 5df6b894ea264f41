/**
 * Calls of the runner that save, copy and restore VMs. The runner continues a call when the connection breaks; a second
 * call with the same ids joins the first.
 */
import { AppError } from '@coppice/contract';
import type { VmWorkspace } from '../../lib/protocol/disk-protocol.ts';
import { CollectedCaptures, StoredCapture, type CaptureOwner } from '../../lib/protocol/capture-protocol.ts';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import { z } from 'zod';
import {
  CaptureInfo,
  ForkedVms,
  VmInfo,
  VmRollback,
  type CaptureRequest,
  type ForkVm,
  type RestoreVm,
  type RollbackVm,
} from '../../lib/protocol/runner-protocol.ts';
import { get, send, vmPath, type RunnerConnection } from './runner-connection.ts';

const REMOVE_DEADLINE_MS = 60_000;
/** Longer than the runner's own limit for storing a capture. */
const STORE_DEADLINE_MS = 6 * 3_600_000;
const COLLECT_DEADLINE_MS = 35 * 60_000;

const REPEATED_BY_OWNERS = { isRepeatable: true, isBackground: true } as const;

export interface Restore {
  captureId: string;
  /** Of the capture: a runner that lacks it fetches it from the object store. */
  organization: string;
  /** Undefined: unrestricted, and no grants. */
  egress: VmEgress | undefined;
  /** Undefined: the captured VM had no disk. */
  workspace: VmWorkspace | undefined;
}

export class RunnerCaptures {
  readonly #connection: RunnerConnection;

  constructor(connection: RunnerConnection) {
    this.#connection = connection;
  }

  /** Saves a VM, which keeps running. */
  snapshot(id: string, captureId: string, deadlineMs: number): Promise<CaptureInfo> {
    return this.#capture(`${vmPath(id)}/snapshot`, captureId, deadlineMs);
  }

  /** Saves a VM and ends it. */
  hibernate(id: string, captureId: string, deadlineMs: number): Promise<CaptureInfo> {
    return this.#capture(`${vmPath(id)}/hibernate`, captureId, deadlineMs);
  }

  /** Copies a VM, which keeps running. The answer has one entry for each child, in their order. */
  async fork(id: string, body: ForkVm, deadlineMs: number): Promise<ForkedVms> {
    const { children } = body;
    const request = send('POST', `${vmPath(id)}/fork`, body, deadlineMs);
    const forked = await this.#connection.callJson(request, ForkedVms);
    if (forked.children.length === children.length) return forked;
    throw new AppError('internal', `the runner answered ${forked.children.length} children`);
  }

  /** Replaces a VM by one restored from a capture, once for each rollback id. */
  rollBack(id: string, rollback: RollbackVm, deadlineMs: number): Promise<VmRollback> {
    const request = send('POST', `${vmPath(id)}/rollback`, rollback, deadlineMs);
    return this.#connection.callJson(request, VmRollback);
  }

  /** Restores a VM from a capture, which is kept. */
  restore(
    id: string,
    { captureId, organization, egress, workspace }: Restore,
    deadlineMs: number,
  ): Promise<VmInfo> {
    const body: RestoreVm = {
      capture_id: captureId,
      organization,
      ...(egress === undefined ? {} : { egress }),
      ...(workspace === undefined ? {} : { workspace }),
    };
    return this.#connection.callJson(send('PUT', vmPath(id), body, deadlineMs), VmInfo);
  }

  list(): Promise<CaptureInfo[]> {
    return this.#connection.callJson(get('/captures'), z.array(CaptureInfo));
  }

  /** Puts a local capture into the object store, which may take hours. The runner continues without this call. */
  store(captureId: string, organization: string, signal: AbortSignal): Promise<StoredCapture> {
    const body: CaptureOwner = { organization };
    const request = send('PUT', `${capturePath(captureId)}/objects`, body, STORE_DEADLINE_MS);
    return this.#connection.callJson({ ...request, signal, ...REPEATED_BY_OWNERS }, StoredCapture);
  }

  /** Deletes chunks of the organization that no stored capture needs. */
  collect(organization: string): Promise<CollectedCaptures> {
    const body: CaptureOwner = { organization };
    const request = send('POST', '/collect-captures', body, COLLECT_DEADLINE_MS);
    return this.#connection.callJson({ ...request, ...REPEATED_BY_OWNERS }, CollectedCaptures);
  }

  /**
   * Removes a capture from the runner, and with its organization from the object store. Idempotent: succeeds if there is
   * none.
   */
  async remove(captureId: string, organization?: string): Promise<void> {
    const query = organization === undefined ? '' : `?${new URLSearchParams({ organization }).toString()}`;
    const path = `${capturePath(captureId)}${query}`;
    try {
      const request = { method: 'DELETE', path, headDeadlineMs: REMOVE_DEADLINE_MS } as const;
      await this.#connection.callBytes(request);
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'not_found')) throw error;
    }
  }

  #capture(path: string, captureId: string, deadlineMs: number): Promise<CaptureInfo> {
    const body: CaptureRequest = { capture_id: captureId };
    return this.#connection.callJson(send('POST', path, body, deadlineMs), CaptureInfo);
  }
}

function capturePath(captureId: string): string {
  return `/captures/${encodeURIComponent(captureId)}`;
}
