import { fetchAuditHead, readAudit, type AuditOptions } from './audit.ts';
import type { AuditEntry, AuditHead } from './audit-entry.ts';
import { resolveClientOptions, type CallOptions, type ClientOptions } from './transport/client-options.ts';
import { CoppiceError } from './transport/errors.ts';
import type { CreateCallOptions } from './transport/post-once.ts';
import { fetchTree, ForkError, forkSandbox, type SandboxTree } from './forks.ts';
import {
  changeState,
  createSandbox,
  destroySandbox,
  fetchSandbox,
  rollBack,
  sandboxPath,
  setIdleTimeout,
  type CreateOptions,
} from './lifecycle.ts';
import { SandboxEgress } from './sandbox-egress.ts';
import type { DestroyResult, SandboxInfo, SandboxStatus } from './sandbox-record.ts';
import {
  restoreSandbox,
  takeSnapshot,
  type RestoreOptions,
  type SnapshotInfo,
  type SnapshotOptions,
} from './snapshots.ts';
import { Transport } from './transport/transport.ts';

/**
 * A microVM of yours. It keeps the service's record as it was last seen; `refresh()` brings it up to date.
 *
 * @example
 * await using sandbox = await Sandbox.create({ image: 'node:22-slim' });
 * const { stdout } = await sandbox.exec('node --version');
 */
export class Sandbox extends SandboxEgress implements AsyncDisposable {
  readonly #transport: Transport;
  readonly #path: string;
  #record: SandboxInfo;

  /** Made by the client: use `Sandbox.create()`, `Sandbox.get()` or {@link Coppice}. */
  constructor(transport: Transport, record: SandboxInfo) {
    super(transport, sandboxPath(record.id));
    this.#transport = transport;
    this.#path = sandboxPath(record.id);
    this.#record = record;
  }

  /**
   * Creates a sandbox with a client of its own, configured by the environment or by the second argument.
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
   * Creates a sandbox from a snapshot with a client of its own; else as `client.sandboxes.restore()`.
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
   * Finds a sandbox with a client of its own; null when there is none with this id.
   *
   * @example
   * const sandbox = await Sandbox.get('run0123456789abcdef0123');
   */
  static async get(id: string, call: CallOptions & ClientOptions = {}): Promise<Sandbox | null> {
    return findSandbox(new Transport(resolveClientOptions(call)), id, call);
  }

  get id(): string {
    return this.#record.id;
  }

  /** As last seen. */
  get status(): SandboxStatus {
    return this.#record.status;
  }

  /** The whole record as last seen. */
  get record(): Readonly<SandboxInfo> {
    return this.#record;
  }

  /**
   * Sets the idle time after which the sandbox is destroyed, or hibernated, and restarts the timer. 0 turns it off.
   *
   * @example
   * await sandbox.setTimeout(3600);
   */
  async setTimeout(seconds: number, options: CallOptions = {}): Promise<SandboxInfo> {
    this.#record = await setIdleTimeout(this.#transport, this.#path, seconds, options);
    return this.#record;
  }

  /**
   * Copies the running sandbox, with its memory, its processes and its files, into `count` new ones (1–100), each of
   * which goes its own way; this one runs on. Rejects with {@link ForkError} when only some of them could be made.
   *
   * @example
   * const [child] = await sandbox.fork();
   * await child.exec('make test');
   *
   * @example
   * const children = await sandbox.fork(8);
   * await Promise.all(children.map((child, seed) => child.exec(`./explore --seed ${seed}`)));
   */
  async fork(count?: 1, call?: CreateCallOptions): Promise<[Sandbox]>;
  async fork(count: number, call?: CreateCallOptions): Promise<Sandbox[]>;
  async fork(count = 1, call: CreateCallOptions = {}): Promise<Sandbox[]> {
    const { records, errors } = await forkSandbox(this.#transport, this.#path, count, call);
    const children = records.map((record) => new Sandbox(this.#transport, record));
    if (errors.length > 0) throw new ForkError(children, errors);
    return children;
  }

  /**
   * Saves the sandbox, which runs on, until the snapshot is deleted. `Sandbox.restore()` makes new sandboxes of it,
   * `rollback()` takes this one back to it.
   *
   * @example
   * const snapshot = await sandbox.snapshot({ name: 'installed' });
   */
  async snapshot(options: SnapshotOptions = {}): Promise<SnapshotInfo> {
    return takeSnapshot(this.#transport, this.#path, options);
  }

  /**
   * Takes the sandbox back to a snapshot of it or of an ancestor of the same size, under the same id. What it did since
   * is lost, and its open connections end. If it fails, the sandbox runs on as it was. With the code `outcome_unknown`
   * the service finishes it when it can: repeat the call with the same `idempotencyKey` to learn how it went.
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
   * Saves the sandbox to disk and gives back its memory and processors; it costs nothing until `resume()`. Its open
   * connections end.
   *
   * @example
   * await sandbox.hibernate();
   */
  async hibernate(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#change('hibernate', options);
  }

  /**
   * Brings a hibernated sandbox back as it was, with its processes and what they listen on. With `autoHibernate` the
   * next call that uses it does so itself.
   *
   * @example
   * await sandbox.resume();
   */
  async resume(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#change('resume', options);
  }

  /**
   * Lists the family: all that descend from the same sandbox by forks and snapshots.
   *
   * @example
   * const { rootId, nodes } = await sandbox.tree();
   * for (const { id, parentId, status } of nodes) console.log(parentId ?? '', id, status);
   */
  async tree(options: CallOptions = {}): Promise<SandboxTree> {
    return fetchTree(this.#transport, this.#path, options);
  }

  /**
   * Reads the audit log, also of a sandbox that has ended: what was done with it, each entry chained to the one before
   * it (`verifyAudit`). With `follow` it goes on until the sandbox has ended; leave the loop to stop.
   *
   * @example
   * for await (const { ts, event, data } of sandbox.audit()) console.log(ts, event, data);
   */
  audit(options: AuditOptions = {}): AsyncGenerator<AuditEntry, void, undefined> {
    return readAudit(this.#transport, this.#path, options);
  }

  /**
   * What the last entry of the audit log is. Kept elsewhere it shows when a log was cut off behind it.
   *
   * @example
   * const { seq, hmac } = await sandbox.auditHead();
   */
  async auditHead(options: CallOptions = {}): Promise<AuditHead> {
    return fetchAuditHead(this.#transport, this.#path, options);
  }

  /**
   * Destroys the sandbox with all that is in it. One that is destroyed already rejects with `invalid_state`.
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
   * Asks the service for the record of now. A destroyed sandbox still has one.
   *
   * @example
   * const { status, expiresAt } = await sandbox.info();
   */
  async info(options: CallOptions = {}): Promise<SandboxInfo> {
    this.#record = await fetchSandbox(this.#transport, this.#path, options);
    return this.#record;
  }

  /**
   * Brings `status` and `record` up to date.
   *
   * @example
   * if ((await sandbox.refresh()).status === 'failed') console.error(sandbox.record.statusReason);
   */
  async refresh(options: CallOptions = {}): Promise<this> {
    await this.info(options);
    return this;
  }

  /** Destroys the sandbox at the end of an `await using` block; one that has ended already is no error. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (hasEnded(this.#record)) return;
    try {
      await this.destroy();
    } catch (error) {
      if (!(await this.#isGone(error))) throw error;
    }
  }

  async #change(change: 'hibernate' | 'resume', call: CallOptions): Promise<SandboxInfo> {
    this.#record = await changeState(this.#transport, this.#path, change, call);
    return this.#record;
  }

  /** A 409 may also mean that another operation is under way, so the record decides. */
  async #isGone(error: unknown): Promise<boolean> {
    if (!(error instanceof CoppiceError)) return false;
    if (error.status === 404) return true;
    return error.status === 409 && hasEnded(await this.info());
  }
}

/** Null when the service answers 404. */
export async function findSandbox(
  transport: Transport,
  id: string,
  options: CallOptions,
): Promise<Sandbox | null> {
  try {
    const info = await fetchSandbox(transport, sandboxPath(id), options);
    return new Sandbox(transport, info);
  } catch (error) {
    if (error instanceof CoppiceError && error.status === 404) return null;
    throw error;
  }
}

function hasEnded(record: SandboxInfo): boolean {
  return record.status === 'destroyed' || record.status === 'failed';
}
