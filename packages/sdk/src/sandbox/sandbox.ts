import { fetchAuditHead, readAudit, type AuditOptions } from '../audit/audit.ts';
import type { AuditEntry, AuditHead } from '../audit/audit-entry.ts';
import { resolveClientOptions, type CallOptions, type ClientOptions } from '../transport/client-options.ts';
import { CoppiceError, nullIfMissing } from '../transport/errors.ts';
import type { CreateCallOptions } from '../transport/post-once.ts';
import { fetchTree, ForkError, forkSandbox, type ForkOptions, type SandboxTree } from './forks.ts';
import {
  changeState,
  type ResumeOptions,
  createSandbox,
  destroySandbox,
  fetchSandbox,
  rollBack,
  sandboxPath,
  type CreateOptions,
} from './lifecycle.ts';
import { fetchMetrics, type MetricsOptions, type SandboxMetrics } from './metrics.ts';
import { SandboxEgress } from './sandbox-egress.ts';
import { updateSandbox, type SandboxSettings } from './settings.ts';
import type { DestroyResult, SandboxInfo, SandboxStatus } from './sandbox-record.ts';
import {
  restoreSandbox,
  takeSnapshot,
  type RestoreOptions,
  type SnapshotInfo,
  type SnapshotOptions,
} from './snapshots.ts';
import { Transport } from '../transport/transport.ts';

/**
 * One microVM sandbox. The object holds the record that the service sent last; `refresh()` fetches it again.
 *
 * Calls reject with {@link CoppiceError} when they fail, with `TypeError` when an argument is invalid, and with the
 * reason of the caller's signal when they are aborted.
 *
 * @example
 * await using sandbox = await Sandbox.create({ image: 'node:22-slim' });
 * const { stdout } = await sandbox.exec('node --version');
 */
export class Sandbox extends SandboxEgress implements AsyncDisposable {
  readonly #transport: Transport;
  readonly #path: string;
  #record: SandboxInfo;

  /** Called by the client only: use `Sandbox.create()`, `Sandbox.get()` or {@link Coppice}. */
  constructor(transport: Transport, record: SandboxInfo) {
    super(transport, sandboxPath(record.id));
    this.#transport = transport;
    this.#path = sandboxPath(record.id);
    this.#record = record;
  }

  /**
   * Creates a sandbox with a new client, which the environment or the second argument configures. Otherwise the same as
   * `client.sandboxes.create()`. Rejects with `TypeError` when there is no API key.
   *
   * @example
   * const sandbox = await Sandbox.create({ memMiB: 2048 }, { baseUrl: 'http://127.0.0.1:8080' });
   */
  static async create(
    options: CreateOptions = {},
    call: CreateCallOptions & ClientOptions = {},
  ): Promise<Sandbox> {
    const transport = new Transport(resolveClientOptions(call));
    return new Sandbox(transport, await createSandbox(transport, options, call));
  }

  /**
   * Creates a sandbox from a snapshot with a new client. Otherwise the same as `client.sandboxes.restore()`. Rejects
   * with `TypeError` when there is no API key.
   *
   * @example
   * const sandbox = await Sandbox.restore('snap0123456789abcdef0123', { timeout: 600 });
   */
  static async restore(
    snapshotId: string,
    options: RestoreOptions = {},
    call: CreateCallOptions & ClientOptions = {},
  ): Promise<Sandbox> {
    const transport = new Transport(resolveClientOptions(call));
    return new Sandbox(transport, await restoreSandbox(transport, snapshotId, options, call));
  }

  /**
   * Finds a sandbox by its id with a new client. Resolves with null when there is none. Rejects with `TypeError` when
   * there is no API key.
   *
   * @example
   * const sandbox = await Sandbox.get('run0123456789abcdef0123');
   */
  static async get(id: string, call: CallOptions & ClientOptions = {}): Promise<Sandbox | null> {
    return findSandbox(new Transport(resolveClientOptions(call)), id, call);
  }

  /** Id of the sandbox, for example `run0123456789abcdef0123`. */
  get id(): string {
    return this.#record.id;
  }

  /** Name of the sandbox in the record that the service sent last. Null without one. */
  get name(): string | null {
    return this.#record.name;
  }

  /** State of the sandbox in the record that the service sent last. */
  get status(): SandboxStatus {
    return this.#record.status;
  }

  /** The record that the service sent last. */
  get record(): Readonly<SandboxInfo> {
    return this.#record;
  }

  /**
   * Sets the idle timeout in seconds (0–2 592 000) and restarts the idle timer. When the timer expires, the service
   * destroys the sandbox, or hibernates it if it has `autoHibernate`. 0 turns the timer off.
   *
   * @example
   * await sandbox.setTimeout(3600);
   */
  async setTimeout(seconds: number, options: CallOptions = {}): Promise<SandboxInfo> {
    return this.update({ timeout: seconds }, options);
  }

  /**
   * Changes settings, all or none, and restarts the idle timer. A hibernated sandbox stays hibernated. Rejects with code
   * `already_exists` when another sandbox of the team has the name.
   *
   * @example
   * await sandbox.update({ labels: { job: 'nightly' }, maxLifetime: 3600 });
   */
  async update(settings: SandboxSettings, options: CallOptions = {}): Promise<SandboxInfo> {
    this.#record = await updateSandbox(this.#transport, this.#path, settings, options);
    return this.#record;
  }

  /**
   * Copies the running sandbox, with its memory, its processes and its files, into `count` new sandboxes (1–100,
   * default 1). The copies are independent of each other, and this sandbox continues to run. Rejects with {@link
   * ForkError} when only some of the copies could be created, and with {@link CoppiceError} when none could.
   *
   * @example
   * const [child] = await sandbox.fork();
   * await child.exec('make test');
   *
   * @example
   * const children = await sandbox.fork(8);
   * await Promise.all(children.map((child, seed) => child.exec(`./explore --seed ${seed}`)));
   */
  async fork(count?: 1, call?: ForkOptions): Promise<[Sandbox]>;
  async fork(count: number, call?: ForkOptions): Promise<Sandbox[]>;
  async fork(count = 1, call: ForkOptions = {}): Promise<Sandbox[]> {
    const { records, errors } = await forkSandbox(this.#transport, this.#path, count, call);
    const children = records.map((record) => new Sandbox(this.#transport, record));
    if (errors.length > 0) throw new ForkError(children, errors);
    return children;
  }

  /**
   * Saves the sandbox as a snapshot, which is kept until it expires or is deleted. The sandbox continues to run.
   * `Sandbox.restore()` creates new sandboxes from the snapshot; `rollback()` returns this sandbox to it. Rejects with
   * code `capacity` when the snapshots of the organization exceed their quota.
   *
   * @example
   * const snapshot = await sandbox.snapshot({ name: 'installed' });
   */
  async snapshot(options: SnapshotOptions = {}): Promise<SnapshotInfo> {
    return takeSnapshot(this.#transport, this.#path, options);
  }

  /**
   * Returns the sandbox, under the same id, to a snapshot of itself or of an ancestor of the same size. All changes
   * since that snapshot are lost, and open connections end. If the rollback fails, the sandbox continues to run
   * unchanged. If the call rejects with code `outcome_unknown`, the service finishes the rollback later: repeat the
   * call with the same `idempotencyKey` to get the result.
   *
   * @example
   * const { id } = await sandbox.snapshot();
   * await sandbox.exec('rm -rf /workspace');
   * await sandbox.rollback(id);
   */
  async rollback(snapshotId: string, options: CreateCallOptions = {}): Promise<SandboxInfo> {
    this.#record = await rollBack(this.#transport, this.#path, snapshotId, options);
    return this.#record;
  }

  /**
   * Saves the sandbox to disk and releases its memory and processors. Open connections end. The sandbox costs nothing
   * until `resume()`.
   *
   * @example
   * await sandbox.hibernate();
   */
  async hibernate(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#change('hibernate', options);
  }

  /**
   * Resumes a hibernated sandbox with its memory, its processes and their listening ports. A sandbox with
   * `autoHibernate` is also resumed by the next call that uses it. Rejects with code `invalid_state` when the sandbox
   * is not hibernated, with `disk_in_use` when another sandbox has its disk, and with `disk_changed` when another one
   * has written to it.
   *
   * @example
   * await sandbox.resume();
   */
  async resume(options: ResumeOptions = {}): Promise<SandboxInfo> {
    return this.#change('resume', options);
  }

  /**
   * Fetches the family of the sandbox: all sandboxes that descend, by forks and snapshots, from the same root.
   *
   * @example
   * const { rootId, nodes } = await sandbox.tree();
   * for (const { id, parentId, status } of nodes) console.log(parentId ?? '', id, status);
   */
  async tree(options: CallOptions = {}): Promise<SandboxTree> {
    return fetchTree(this.#transport, this.#path, options);
  }

  /**
   * Measures the sandbox: CPU time, memory, disks and network, now and in the last hour. The numbers are the host's,
   * apart from `guestReported`. This is no use of the sandbox: its idle timer continues, and it is not resumed. Rejects
   * with code `invalid_state` when the sandbox has ended.
   *
   * @example
   * const { now, series } = await sandbox.metrics({ step: 60 });
   * console.log(now?.cpu.utilization, now?.memory.hostBytes);
   * for (const { at, cpuUtilization } of series) console.log(at, cpuUtilization);
   */
  async metrics(options: MetricsOptions = {}): Promise<SandboxMetrics> {
    return fetchMetrics(this.#transport, this.#path, options);
  }

  /**
   * Yields the entries of the audit log, which records every action on the sandbox. It works for a sandbox that has
   * ended, too. Each entry is chained to the one before it; `verifyAudit` checks the chain. With `follow`, new entries
   * are yielded until the sandbox has ended; leave the loop to stop earlier. Throws {@link CoppiceError} with code
   * `invalid_response` for a line that is not an audit entry.
   *
   * @example
   * for await (const { ts, event, data } of sandbox.audit()) console.log(ts, event, data);
   */
  audit(options: AuditOptions = {}): AsyncGenerator<AuditEntry, void, undefined> {
    return readAudit(this.#transport, this.#path, options);
  }

  /**
   * Fetches number and hash of the last entry of the audit log. Keep it outside the service: `verifyAudit` then detects
   * a log whose end was cut off before this entry.
   *
   * @example
   * const { seq, hmac } = await sandbox.auditHead();
   */
  async auditHead(options: CallOptions = {}): Promise<AuditHead> {
    return fetchAuditHead(this.#transport, this.#path, options);
  }

  /**
   * Destroys the sandbox and everything in it, and resolves with what it used. Rejects with code `invalid_state` when
   * the sandbox has already ended.
   *
   * @example
   * const { costCents, cpuMs } = await sandbox.destroy();
   */
  async destroy(options: CallOptions = {}): Promise<DestroyResult> {
    const result = await destroySandbox(this.#transport, this.#path, options);
    this.#record = { ...this.#record, status: result.status };
    return result;
  }

  /**
   * Fetches the current record and stores it in `record`. A destroyed sandbox still has a record.
   *
   * @example
   * const { status, expiresAt } = await sandbox.info();
   */
  async info(options: CallOptions = {}): Promise<SandboxInfo> {
    this.#record = await fetchSandbox(this.#transport, this.#path, options);
    return this.#record;
  }

  /**
   * Fetches the current record, as `info()` does, and resolves with this sandbox.
   *
   * @example
   * if ((await sandbox.refresh()).status === 'failed') console.error(sandbox.record.statusReason);
   */
  async refresh(options: CallOptions = {}): Promise<this> {
    await this.info(options);
    return this;
  }

  /** Destroys the sandbox at the end of an `await using` block. A sandbox that has already ended is not an error. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (hasEnded(this.#record)) return;
    try {
      await this.destroy();
    } catch (error) {
      if (!(await this.#isGone(error))) throw error;
    }
  }

  async #change(change: 'hibernate' | 'resume', call: ResumeOptions): Promise<SandboxInfo> {
    this.#record = await changeState(this.#transport, this.#path, change, call);
    return this.#record;
  }

  /**
   * Returns true when the sandbox has ended. A 409 can also mean that another operation runs, so the record decides.
   */
  async #isGone(error: unknown): Promise<boolean> {
    if (!(error instanceof CoppiceError)) return false;
    if (error.status === 404) return true;
    return error.status === 409 && hasEnded(await this.info());
  }
}

/** Finds a sandbox by its id. Resolves with null when the service answers 404. */
export async function findSandbox(
  transport: Transport,
  id: string,
  options: CallOptions,
): Promise<Sandbox | null> {
  const info = await nullIfMissing(fetchSandbox(transport, sandboxPath(id), options));
  return info && new Sandbox(transport, info);
}

function hasEnded(record: SandboxInfo): boolean {
  return record.status === 'destroyed' || record.status === 'failed';
}
