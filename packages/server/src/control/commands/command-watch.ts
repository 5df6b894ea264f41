/**
 * Follows commands to their ends. One stream from the agent of each sandbox that runs and may run commands:
 *
 *   list: all that the guest has ─► recorder.agree ─► watch: each end ─► recorder.settle ─► callers that wait
 *     ▲                                                  │ broken: a restart of the runner, a rollback
 *     └──────────────── after a pause ◄──────────────────┘ ends when the sandbox stops running, or no command runs
 *
 * A copy of a sandbox has its commands, too. They get ids of their own when its guest first reports them.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, isFinal, type SandboxState } from '@coppice/contract';
import type { Logger } from 'pino';
import type { RunnerCommands } from '../placement/runner-commands.ts';
import { CommandRecorder, type RecorderParts } from './command-recorder.ts';
import type { CommandStore } from './command-store.ts';

/** A guest that reports more commands which are none of its violates the protocol. */
const MAX_STRANGE = 512;
/** The pause doubles after each failure, this many times. */
const MAX_DOUBLINGS = 6;
/** A guest that was watched for this long has not failed at once. */
const LASTING_MS = 10_000;

export interface CommandWatchParts extends Omit<RecorderParts, 'onChange'> {
  commandsOf: (sandboxId: string) => Pick<RunnerCommands, 'list' | 'watch'>;
  store: CommandStore;
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

interface Follower {
  stop: AbortController;
  done: Promise<void>;
  /** While the guest is compared: commands that have been starting at some moment of it, and need not be in its list. */
  unsettled: Set<string> | undefined;
  /** A command was started since the follower last looked for commands that run. */
  isAgain: boolean;
}

export class CommandWatch implements AsyncDisposable {
  readonly recorder: CommandRecorder;
  readonly #parts: CommandWatchParts;
  /** Sandboxes of which a command may run. */
  readonly #open = new Set<string>();
  /** Organizations that have had commands: their copies of sandboxes may have some. */
  readonly #organizations = new Set<string>();
  readonly #followers = new Map<string, Follower>();
  /** Sandboxes whose guest has been compared since this process started, or since its last rollback. */
  readonly #compared = new Set<string>();
  /** Commands that are being started, by id. */
  readonly #starting = new Set<string>();
  /** Callers that wait for a change, by command. */
  readonly #waiting = new Map<string, Set<() => void>>();

  constructor(parts: CommandWatchParts) {
    this.#parts = parts;
    this.recorder = new CommandRecorder({ ...parts, onChange: (id) => this.#wake(id) });
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
    if (isFinal(status)) {
      this.#open.delete(id);
      this.#compared.delete(id);
    }
    if (status !== 'running') this.#followers.get(id)?.stop.abort();
    else if (this.#open.has(id) || (parent_id !== null && this.#organizations.has(organization_id)))
      this.#start(sandbox);
  }

  /** Follows anew after a rollback, which may have brought back commands that had ended. */
  rolledBack(sandbox: WatchedSandbox): void {
    if (!this.#organizations.has(sandbox.organization_id) || isFinal(sandbox.status)) return;
    this.#open.add(sandbox.id);
    this.#compared.delete(sandbox.id);
    this.#followers.get(sandbox.id)?.stop.abort();
    this.follow(sandbox);
  }

  /** Stops following a sandbox that another control is about to have. */
  forget(sandboxId: string): void {
    this.#open.delete(sandboxId);
    this.#compared.delete(sandboxId);
    this.#followers.get(sandboxId)?.stop.abort();
  }

  /** Ends the commands of a sandbox whose VM is gone. A log that takes no entry must not keep the sandbox from its end. */
  async ending(sandboxId: string): Promise<void> {
    if (!this.#open.has(sandboxId)) return;
    await this.recorder.loseAll(sandboxId).catch((error: unknown) => {
      this.#parts.log.warn({ err: error, sandbox_id: sandboxId }, 'the ends of commands are not recorded');
    });
  }

  /** Notes a command that is being started, until the result is disposed. Then a sandbox that runs is followed. */
  starting(sandbox: { readonly row: Readonly<WatchedSandbox> }, commandId: string): Disposable {
    const { id, organization_id } = sandbox.row;
    this.#starting.add(commandId);
    this.#followers.get(id)?.unsettled?.add(commandId);
    this.#organizations.add(organization_id);
    this.#open.add(id);
    return {
      [Symbol.dispose]: () => {
        this.#starting.delete(commandId);
        // Its follower may have looked before the command had a row, and found none.
        this.#open.add(id);
        this.follow(sandbox.row);
      },
    };
  }

  /** Waits for changes of a command's row, those included that come before {@link Change.happened} is called. */
  expectChange(commandId: string): Change {
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiting = this.#waiting.get(commandId) ?? new Set();
    this.#waiting.set(commandId, waiting.add(resolve));
    const forget = (): void => {
      waiting.delete(resolve);
      if (waiting.size === 0 && this.#waiting.get(commandId) === waiting) this.#waiting.delete(commandId);
    };
    return {
      happened: async (signal) => {
        const stop = (): void => resolve();
        signal.addEventListener('abort', stop);
        if (signal.aborted) resolve();
        await promise;
        signal.removeEventListener('abort', stop);
      },
      [Symbol.dispose]: forget,
    };
  }

  #wake(commandId: string): void {
    for (const resolve of this.#waiting.get(commandId) ?? []) resolve();
  }

  #start(sandbox: WatchedSandbox): void {
    const running = this.#followers.get(sandbox.id);
    if (running !== undefined && !running.stop.signal.aborted) {
      running.isAgain = true;
      return;
    }
    const follower: Follower = {
      stop: new AbortController(),
      done: Promise.resolve(),
      unsettled: undefined,
      isAgain: true,
    };
    follower.done = (running?.done ?? Promise.resolve())
      .then(() => this.#run(sandbox, follower))
      .finally(() => {
        if (this.#followers.get(sandbox.id) !== follower) return;
        this.#followers.delete(sandbox.id);
        if (follower.isAgain && !follower.stop.signal.aborted) this.#start(sandbox);
      });
    this.#followers.set(sandbox.id, follower);
  }

  async #run(sandbox: WatchedSandbox, follower: Follower): Promise<void> {
    const { signal } = follower.stop;
    let failures = 0;
    while (!signal.aborted) {
      const beganAt = performance.now();
      try {
        if (await this.#followOnce(sandbox, follower)) return;
      } catch (error) {
        if (signal.aborted) return;
        this.#parts.log.debug({ err: error, sandbox_id: sandbox.id }, 'commands are not watched for now');
      }
      failures = performance.now() - beganAt > LASTING_MS ? 0 : failures + 1;
      const pauseMs = this.#parts.retryMs * 2 ** Math.min(MAX_DOUBLINGS, failures - 1);
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Returns whether no command runs any more. Returns false if the watch ends before. */
  async #followOnce(sandbox: WatchedSandbox, follower: Follower): Promise<boolean> {
    const { signal } = follower.stop;
    let strange = await this.#compare(sandbox, follower);
    // A rollback meanwhile ends this follower, and the next one compares again.
    if (signal.aborted) return false;
    this.#compared.add(sandbox.id);
    if (!(await this.#mayRun(sandbox.id, follower))) return true;
    for await (const ended of this.#parts.commandsOf(sandbox.id).watch(sandbox.id, signal)) {
      if (!(await this.recorder.settle(sandbox, ended))) strange += 1;
      if (strange > MAX_STRANGE)
        throw new AppError('guest_unreachable', 'the agent reports commands that are none of its sandbox');
      if (!(await this.#mayRun(sandbox.id, follower))) return true;
    }
    return false;
  }

  /** Returns how many commands of the guest are none of the sandbox. */
  async #compare(sandbox: WatchedSandbox, follower: Follower): Promise<number> {
    const unsettled = new Set(this.#starting);
    follower.unsettled = unsettled;
    try {
      return await this.recorder.agree(sandbox, await this.#parts.commandsOf(sandbox.id).list(sandbox.id), {
        // Commands that start now are noted for the follower that comes after one that is stopped.
        isStarting: (id) => follower.stop.signal.aborted || unsettled.has(id),
        mayRevive: !this.#compared.has(sandbox.id),
      });
    } finally {
      follower.unsettled = undefined;
    }
  }

  /** Returns whether a command of the sandbox may still run. */
  async #mayRun(sandboxId: string, follower: Follower): Promise<boolean> {
    do {
      follower.isAgain = false;
      if (await this.#parts.store.hasOpen(sandboxId)) {
        this.#open.add(sandboxId);
        return true;
      }
    } while (follower.isAgain);
    this.#open.delete(sandboxId);
    return false;
  }
}

export interface Change extends Disposable {
  /** Resolves at the first change, or when `signal` fires. */
  happened: (signal: AbortSignal) => Promise<void>;
}
