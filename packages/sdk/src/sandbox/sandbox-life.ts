import type { AuditOptions } from '../audit/audit.ts';
import type { AuditEntry, AuditHead } from '../audit/audit-entry.ts';
import type { CallOptions } from '../transport/client-options.ts';
import type { CreateCallOptions } from '../transport/post-once.ts';
import type { ForkOptions, SandboxTree } from './forks.ts';
import type { ResumeOptions } from './lifecycle.ts';
import type { MetricsOptions, SandboxMetrics } from './metrics.ts';
import type { Sandbox } from './sandbox.ts';
import type { DestroyResult, SandboxInfo } from './sandbox-record.ts';
import type { SandboxSettings } from './settings.ts';
import type { SnapshotInfo, SnapshotOptions } from './snapshots.ts';

/**
 * The part of {@link Sandbox} for the sandbox as a whole: its settings, copies, states, and records of what happened.
 * Calls reject with {@link CoppiceError}.
 */
export interface SandboxLife {
  /**
   * Sets the idle timeout in seconds (0–2 592 000) and restarts the idle timer. When the timer expires, the service
   * destroys the sandbox, or hibernates it if it has `autoHibernate`. 0 turns the timer off.
   *
   * @example
   * await sandbox.setTimeout(3600);
   */
  setTimeout(seconds: number, options?: CallOptions): Promise<SandboxInfo>;

  /**
   * Changes settings, all or none, and restarts the idle timer. A hibernated sandbox stays hibernated. Rejects with code
   * `already_exists` when another sandbox of the team has the name.
   *
   * @example
   * await sandbox.update({ labels: { job: 'nightly' }, maxLifetime: 3600 });
   */
  update(settings: SandboxSettings, options?: CallOptions): Promise<SandboxInfo>;

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
  fork(count?: 1, call?: ForkOptions): Promise<[Sandbox]>;
  fork(count: number, call?: ForkOptions): Promise<Sandbox[]>;

  /**
   * Saves the sandbox as a snapshot, which is kept until it expires or is deleted. The sandbox continues to run.
   * `Sandbox.restore()` creates new sandboxes from the snapshot; `rollback()` returns this sandbox to it. Rejects with
   * code `capacity` when the snapshots of the organization exceed their quota.
   *
   * @example
   * const snapshot = await sandbox.snapshot({ name: 'installed' });
   */
  snapshot(options?: SnapshotOptions): Promise<SnapshotInfo>;

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
  rollback(snapshotId: string, options?: CreateCallOptions): Promise<SandboxInfo>;

  /**
   * Saves the sandbox to disk and releases its memory and processors. Open connections end. The sandbox costs nothing
   * until `resume()`.
   *
   * @example
   * await sandbox.hibernate();
   */
  hibernate(options?: CallOptions): Promise<SandboxInfo>;

  /**
   * Resumes a hibernated sandbox with its memory, its processes and their listening ports. A sandbox with
   * `autoHibernate` is also resumed by the next call that uses it. Rejects with code `invalid_state` when the sandbox
   * is not hibernated, with `disk_in_use` when another sandbox has its disk, and with `disk_changed` when another one
   * has written to it.
   *
   * @example
   * await sandbox.resume();
   */
  resume(options?: ResumeOptions): Promise<SandboxInfo>;

  /**
   * Fetches the family of the sandbox: all sandboxes that descend, by forks and snapshots, from the same root.
   *
   * @example
   * const { rootId, nodes } = await sandbox.tree();
   * for (const { id, parentId, status } of nodes) console.log(parentId ?? '', id, status);
   */
  tree(options?: CallOptions): Promise<SandboxTree>;

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
  metrics(options?: MetricsOptions): Promise<SandboxMetrics>;

  /**
   * Yields the entries of the audit log, which records every action on the sandbox. It works for a sandbox that has
   * ended, too. Each entry is chained to the one before it; `verifyAudit` checks the chain. With `follow`, new entries
   * are yielded until the sandbox has ended; leave the loop to stop earlier. Throws {@link CoppiceError} with code
   * `invalid_response` for a line that is not an audit entry.
   *
   * @example
   * for await (const { ts, event, data } of sandbox.audit()) console.log(ts, event, data);
   */
  audit(options?: AuditOptions): AsyncGenerator<AuditEntry, void, undefined>;

  /**
   * Fetches number and hash of the last entry of the audit log. Keep it outside the service: `verifyAudit` then detects
   * a log whose end was cut off before this entry.
   *
   * @example
   * const { seq, hmac } = await sandbox.auditHead();
   */
  auditHead(options?: CallOptions): Promise<AuditHead>;

  /**
   * Destroys the sandbox and everything in it, and resolves with what it used. Rejects with code `invalid_state` when
   * the sandbox has already ended.
   *
   * @example
   * const { costCents, cpuMs } = await sandbox.destroy();
   */
  destroy(options?: CallOptions): Promise<DestroyResult>;

  /**
   * Fetches the current record and stores it in `record`. A destroyed sandbox still has a record.
   *
   * @example
   * const { status, expiresAt } = await sandbox.info();
   */
  info(options?: CallOptions): Promise<SandboxInfo>;
}
