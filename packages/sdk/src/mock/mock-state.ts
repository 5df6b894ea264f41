/** The state of the mocked service. Its records have the form of the contract, and its states change by its tables. */
import {
  AppError,
  computeCostUnits,
  costCents,
  findTransition,
  isFinal,
  type DestroyResult,
  type SandboxRecord,
  type SandboxRequest,
  type SnapshotRecord,
} from '@coppice/contract';

/** A file in a mocked sandbox. */
interface MockFile {
  bytes: Uint8Array<ArrayBuffer>;
  mode: string;
  mtime: string;
}

/** A sandbox with what its record does not show. */
export interface MockSandbox {
  record: SandboxRecord;
  env: Record<string, string>;
  files: Map<string, MockFile>;
  /** Unix milliseconds. */
  createdAtMs: number;
  hibernatedMs: number;
}

/** A snapshot with what it saved. */
export interface MockSnapshot {
  record: SnapshotRecord;
  saved: Pick<MockSandbox, 'env' | 'files' | 'record'>;
}

/** All that the mocked service stores. */
export class MockState {
  readonly sandboxes = new Map<string, MockSandbox>();
  readonly snapshots = new Map<string, MockSnapshot>();
  #count = 0;

  /** Returns an id with a running number, so that tests are the same in each run. */
  newId(prefix: 'run' | 'snap'): string {
    this.#count += 1;
    return `${prefix}${this.#count.toString(16).padStart(20, '0')}`;
  }

  /** Throws `not_found` for an unknown id. */
  getSandbox(id: string): MockSandbox {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) throw new AppError('not_found', `there is no sandbox ${id}`);
    return sandbox;
  }

  /** Throws `not_found` for an unknown id. */
  getSnapshot(id: string): MockSnapshot {
    const snapshot = this.snapshots.get(id);
    if (snapshot === undefined) throw new AppError('not_found', `there is no snapshot ${id}`);
    return snapshot;
  }

  /** Throws `already_exists` if another live sandbox has the name. */
  requireFreeName(name: string | null | undefined, owner?: MockSandbox): void {
    if (name === null || name === undefined) return;
    for (const sandbox of this.sandboxes.values()) {
      if (sandbox === owner || sandbox.record.name !== name || isFinal(sandbox.record.status)) continue;
      const quoted = JSON.stringify(name);
      const message = `name: a sandbox of the team is called ${quoted}; choose another name, or destroy that sandbox`;
      throw new AppError('already_exists', message);
    }
  }
}

/**
 * Throws `invalid_state` if the state of the sandbox does not allow the request. A sandbox with `auto_hibernate` is
 * resumed where the service would resume it. Every accepted request restarts the idle timer.
 */
export function requireAllowed(sandbox: MockSandbox, request: SandboxRequest): void {
  const { record } = sandbox;
  const transition = findTransition(record.status, request);
  if (transition.outcome === 'refuse') {
    if (!transition.wakes || !record.auto_hibernate) {
      throw new AppError(
        'invalid_state',
        `the sandbox is ${record.status}: the request ${request} is refused`,
      );
    }
    resume(sandbox);
  }
  if (request !== 'destroy') restartTimer(sandbox);
}

/** Sets the time at which the sandbox would end. The mock shows it, but ends no sandbox by itself. */
export function restartTimer({ record, createdAtMs }: MockSandbox): void {
  const ends = [
    record.timeout > 0 ? Date.now() + record.timeout * 1000 : undefined,
    record.max_lifetime === null ? undefined : createdAtMs + record.max_lifetime * 1000,
    record.ends_at === null ? undefined : Date.parse(record.ends_at),
  ].filter((end) => end !== undefined);
  const isIdle = record.status === 'hibernated' && record.timeout > 0;
  const shown = isIdle ? ends.slice(1) : ends;
  record.expires_at = shown.length === 0 ? null : new Date(Math.min(...shown)).toISOString();
}

export function hibernate(sandbox: MockSandbox): void {
  const { record } = sandbox;
  record.billed_ms += Date.now() - Date.parse(record.running_since ?? record.created_at);
  record.running_since = null;
  record.status = 'hibernated';
  record.hibernated_at = new Date().toISOString();
  restartTimer(sandbox);
}

export function resume(sandbox: MockSandbox): void {
  const { record } = sandbox;
  if (record.hibernated_at !== null) sandbox.hibernatedMs += Date.now() - Date.parse(record.hibernated_at);
  record.status = 'running';
  record.hibernated_at = null;
  record.running_since = new Date().toISOString();
  restartTimer(sandbox);
}

/** Ends the sandbox. Its use of the processor and of memory is made up, its cost is computed as the service does. */
export function destroy(sandbox: MockSandbox): DestroyResult {
  if (sandbox.record.status === 'hibernated') resume(sandbox);
  const { record, createdAtMs, hibernatedMs } = sandbox;
  const uptimeMs = Math.max(1, Date.now() - createdAtMs);
  const billedMs = Math.max(0, uptimeMs - hibernatedMs);
  Object.assign(record, {
    status: 'destroyed',
    status_reason: 'requested',
    expires_at: null,
    ended_at: new Date().toISOString(),
    billed_ms: billedMs,
    running_since: null,
  });
  sandbox.files.clear();
  const cost = computeCostUnits({ vcpus: record.vcpus, memMiB: record.mem_mib, billedMs });
  return {
    status: 'destroyed',
    cpu_ms: 1,
    mem_peak_bytes: record.mem_mib * 2 ** 20,
    uptime_ms: uptimeMs,
    cost_cents: costCents(cost),
  };
}
