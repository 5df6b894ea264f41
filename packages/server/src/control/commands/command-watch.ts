/**
 * Follows commands to their ends. One stream from the agent of each sandbox that runs and may run commands:
 *
 *   agree: what the guest has ─► rows ─► watch: each end ─► audit entry and row, in one transaction ─► callers that wait
 *     ▲                                       │ broken: a restart of the runner, a rollback
 *     └──────────── after a pause ◄───────────┘      ends when the sandbox stops running, or no command runs
 *
 * A copy of a sandbox has its commands, too. They get ids of their own when its guest first reports them.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, isFinal, type SandboxState } from '@coppice/contract';
import type { Logger } from 'pino';
import { commandNotes } from '../audit/audited-process.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { GuestCommand, RunnerCommands } from '../placement/runner-commands.ts';
import type { Clock } from '../time/clock.ts';
import { newCommandId } from './command-ids.ts';
import type { CommandStore } from './command-store.ts';
import { OPEN_STATES, type CommandRow, type CommandUpdate } from './command-tables.ts';

const MAX_UPDATES = 5;

export interface CommandWatchParts {
  runner: Pick<RunnerCommands, 'list' | 'watch'>;
  store: CommandStore;
  audit: Pick<AuditLog, 'append' | 'commit'>;
  clock: Pick<Clock, 'wallMs'>;
  /** Pause before a guest that could not be asked is asked again. */
  retryMs: number;
  log: Logger;
}

/** A sandbox that may have commands. */
export interface WatchedSandbox {
  id: string;
  organization_id: string;
  parent_id: string | null;
  status: SandboxState;
}

export class CommandWatch implements AsyncDisposable {
  readonly #parts: CommandWatchParts;
  /** Sandboxes of which a command may run. */
  readonly #open = new Set<string>();
  /** Organizations that have had commands: their copies of sandboxes may have some. */
  readonly #organizations = new Set<string>();
  readonly #followers = new Map<string, { stop: AbortController; done: Promise<void> }>();
  /** Commands that are being started, by id: the guest may not have them yet. */
  readonly #starting = new Set<string>();
  /** Callers that wait for a change, by sandbox. */
  readonly #waiting = new Map<string, Set<() => void>>();

  constructor(parts: CommandWatchParts) {
    this.#parts = parts;
  }

  /** Loads what may run. Call it before the first {@link follow}. */
  async load(): Promise<void> {
    for (const id of await this.#parts.store.listOpen()) this.#open.add(id);
    for (const id of await this.#parts.store.listOrganizations()) this.#organizations.add(id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const followers = [...this.#followers.values()];
    for (const { stop } of followers) stop.abort();
    await Promise.all(followers.map(({ done }) => done));
  }

  /** Follows the commands of a sandbox according to its committed state. */
  follow(sandbox: WatchedSandbox): void {
    const { id, status, parent_id, organization_id } = sandbox;
    if (isFinal(status)) this.#wake(id);
    if (status !== 'running') this.#followers.get(id)?.stop.abort();
    else if (this.#open.has(id) || (parent_id !== null && this.#organizations.has(organization_id)))
      this.#start(sandbox);
  }

  /** Follows again after a rollback, which may have brought back commands that had ended. */
  rolledBack(sandbox: WatchedSandbox): void {
    if (!this.#organizations.has(sandbox.organization_id)) return;
    this.#open.add(sandbox.id);
    this.#start(sandbox);
  }

  /** Notes a command that is being started, until the result is disposed. Then it is followed. */
  starting(sandbox: WatchedSandbox, commandId: string): Disposable {
    this.#starting.add(commandId);
    this.#organizations.add(sandbox.organization_id);
    this.#open.add(sandbox.id);
    return {
      [Symbol.dispose]: () => {
        this.#starting.delete(commandId);
        this.#start(sandbox);
      },
    };
  }

  /** Resolves at the next change of any command of a sandbox, at the sandbox's end, or when `signal` fires. */
  async changed(sandboxId: string, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiting = this.#waiting.get(sandboxId) ?? new Set();
    this.#waiting.set(sandboxId, waiting.add(resolve));
    signal.addEventListener('abort', () => resolve(), { once: true });
    if (signal.aborted) resolve();
    await promise;
    waiting.delete(resolve);
    if (waiting.size === 0) this.#waiting.delete(sandboxId);
  }

  #wake(sandboxId: string): void {
    for (const resolve of this.#waiting.get(sandboxId) ?? []) resolve();
  }

  #start(sandbox: WatchedSandbox): void {
    const running = this.#followers.get(sandbox.id);
    if (running !== undefined && !running.stop.signal.aborted) return;
    const stop = new AbortController();
    const before = running?.done ?? Promise.resolve();
    const follower = { stop, done: before.then(() => this.#run(sandbox, stop.signal)) };
    this.#followers.set(sandbox.id, follower);
    void follower.done.finally(() => {
      if (this.#followers.get(sandbox.id) === follower) this.#followers.delete(sandbox.id);
    });
  }

  async #run(sandbox: WatchedSandbox, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (!(await this.#agree(sandbox))) return;
        for await (const ended of this.#parts.runner.watch(sandbox.id, signal)) {
          await this.#settle(sandbox, ended);
          if (!this.#open.has(sandbox.id)) return;
        }
      } catch (error) {
        if (signal.aborted) return;
        this.#parts.log.debug({ err: error, sandbox_id: sandbox.id }, 'commands are not watched for now');
      }
      await delay(this.#parts.retryMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Brings the rows in line with the guest. Returns whether a command may still run. */
  async #agree(sandbox: WatchedSandbox): Promise<boolean> {
    const { runner, store } = this.#parts;
    const starting = new Set(this.#starting);
    const inGuest = await runner.list(sandbox.id);
    const ids = inGuest.map(({ id }) => id);
    const rows = new Map((await store.listOfGuest(sandbox.id, ids)).map((row) => [row.guest_id, row]));
    for (const command of inGuest) {
      const row = rows.get(command.id);
      if (row === undefined) await this.#adopt(sandbox, command);
      else if (needsChange(row, command)) await this.#change(row, buildChange(row, command, this.#now));
    }
    const known = new Set(ids);
    for (const row of rows.values()) {
      const isMissing = isOpen(row) && !known.has(row.guest_id);
      if (isMissing && !starting.has(row.id) && !this.#starting.has(row.id))
        await this.#change(row, { state: 'lost', ended_at: this.#now });
    }
    return this.#checkOpen(sandbox.id);
  }

  /** Gives a command of a copied guest a row in the copy. */
  async #adopt({ id, organization_id }: WatchedSandbox, command: GuestCommand): Promise<void> {
    const started = await this.#parts.store.findStarted(organization_id, command.id);
    // The guest has invented it.
    if (started === undefined) return;
    const { guest_id, command: text, tag, started_at } = started;
    const change = buildChange(started, command, this.#now);
    await this.#parts.store.insert({
      id: newCommandId(),
      organization_id,
      sandbox_id: id,
      guest_id,
      command: text,
      tag,
      started_at,
      start_seq: null,
      ...change,
    });
    if (change.state === 'running') this.#open.add(id);
  }

  async #settle(sandbox: WatchedSandbox, ended: GuestCommand): Promise<void> {
    const row = await this.#parts.store.findByGuestId(sandbox.id, ended.id);
    if (row === undefined) return this.#adopt(sandbox, ended);
    if (!isOpen(row)) return;
    await this.#change(row, buildChange(row, ended, this.#now));
    await this.#checkOpen(sandbox.id);
  }

  async #checkOpen(sandboxId: string): Promise<boolean> {
    if (await this.#parts.store.hasOpen(sandboxId)) this.#open.add(sandboxId);
    else this.#open.delete(sandboxId);
    return this.#open.has(sandboxId);
  }

  /** Writes a change, and the entry of an end. A start may change the row meanwhile: then it is read again. */
  async #change(row: CommandRow, change: CommandUpdate): Promise<void> {
    const { store, audit } = this.#parts;
    for (let current = row, tries = 0; tries < MAX_UPDATES; tries += 1) {
      const hasEnded = isOpen(current) && (change.state === 'exited' || change.state === 'lost');
      const isWritten = hasEnded
        ? await audit
            .commit(row.sandbox_id, closingNote(current, change), async (transaction) =>
              requireWritten(await store.within(transaction).update(current, change)),
            )
            .catch(ifNotWritten)
        : await store.update(current, change);
      if (isWritten) return this.#wake(row.sandbox_id);
      const next = await store.find(row.sandbox_id, row.id);
      if (next === undefined || !isOpen(next)) return;
      current = next;
    }
  }

  get #now(): number {
    return this.#parts.clock.wallMs();
  }
}

function isOpen({ state }: Pick<CommandRow, 'state'>): boolean {
  return (OPEN_STATES as readonly string[]).includes(state);
}

/** An ended command may run again after a rollback. */
function needsChange(row: CommandRow, { exit }: GuestCommand): boolean {
  return isOpen(row) ? row.state === 'starting' || exit !== undefined : exit === undefined;
}

/** Builds what a report of the guest changes. Its times are only believed within the command's own life. */
function buildChange(
  row: Pick<CommandRow, 'started_at'>,
  { exit, ended_ago_ms, output_bytes, dropped_bytes }: GuestCommand,
  now: number,
): Pick<CommandRow, 'state' | 'exit_code' | 'timed_out' | 'output_bytes' | 'dropped_bytes' | 'ended_at'> {
  const counts = { output_bytes, dropped_bytes };
  if (exit === undefined)
    return { ...counts, state: 'running', exit_code: null, timed_out: false, ended_at: null };
  const ended_at = Math.min(now, Math.max(row.started_at, now - ended_ago_ms));
  return { ...counts, state: 'exited', exit_code: exit.exit_code, timed_out: exit.timed_out, ended_at };
}

function closingNote(
  { id, command, started_at, start_seq }: CommandRow,
  { exit_code, ended_at }: CommandUpdate,
) {
  const duration_ms = Number(ended_at) - started_at;
  const end = { exit_code: exit_code ?? null, duration_ms };
  return commandNotes(command, id).closing(start_seq === null ? end : { ...end, start_seq });
}

class NotWritten extends Error {}

function requireWritten(isWritten: boolean): true {
  if (!isWritten) throw new NotWritten();
  return true;
}

/** The log of a sandbox that has ended takes no entry. */
function ifNotWritten(error: unknown): boolean {
  if (error instanceof NotWritten || (error instanceof AppError && error.code === 'invalid_state'))
    return false;
  throw error;
}
