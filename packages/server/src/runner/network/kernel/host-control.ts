/**
 * Client of `hostctl serve`, a child process that speaks netlink for the runner (hostctl/internal/serve). The child ends
 * when its standard input closes, so it never outlives the runner. A child that has died is replaced by the next request;
 * requests in progress then fail, and every watch reports a removal that may have been missed.
 */
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Writable } from 'node:stream';
import { z } from 'zod';
import { DeadlineError } from '../../../lib/waiting/deadline.ts';
import { JsonLineClient, type LineEvent } from '../../../lib/streams/json-line-client.ts';

/** The kernel answers within the system call; a flush may walk a large table. */
const ANSWER_TIMEOUT_MS = 15_000;
/** Bounds what is kept of the child's errors. */
const MAX_STDERR = 2000;
/** Between attempts to watch again. */
const MIN_PAUSE_MS = 50;
const MAX_PAUSE_MS = 5000;

const Change = z.object({ event: z.enum(['removed', 'unwatched']), table: z.string() });

const Elements = z
  .array(
    z.object({
      key: z.base64().transform((text) => Buffer.from(text, 'base64')),
      packets: z.int().nonnegative(),
      remaining_ms: z.number().optional(),
    }),
  )
  .nullable();

export interface SetElement {
  key: Buffer;
  /** 0 for an element without a counter. */
  packets: number;
  /** Infinite for an element without a timeout. */
  remainingMs: number;
}

/** Throws `internal`, with the kernel's words, when a request is refused or the program cannot be started. */
export class HostControl implements Disposable {
  readonly #program: string;
  readonly #watches = new Map<string, Set<() => void>>();
  #child: { process: ChildProcessWithoutNullStreams; client: JsonLineClient } | undefined;
  readonly #rewatching = new Set<string>();
  #isClosed = false;

  /** `program` is the path of hostctl. */
  constructor(program: string) {
    this.#program = program;
  }

  /** Forgets all connections with exactly this mark, so that the next guest with the same address inherits none. */
  async flushConnections(mark: number): Promise<void> {
    await this.#ask('flushing connections', { op: 'flush', mark });
  }

  /** Returns the elements of a set of nftables; undefined when there is no such set, or no such table. */
  async readSet(table: string, name: string): Promise<SetElement[] | undefined> {
    const elements = Elements.parse(await this.#ask('reading a set', { op: 'set', table, name }));
    return elements?.map(({ key, packets, remaining_ms = Infinity }) => ({
      key,
      packets,
      remainingMs: remaining_ms,
    }));
  }

  /** Returns the packets of a named counter; undefined when there is no such counter, or no such table. */
  async readCounter(table: string, name: string): Promise<number | undefined> {
    const packets = await this.#ask('reading a counter', { op: 'counter', table, name });
    return z.int().nonnegative().nullable().parse(packets) ?? undefined;
  }

  /** Makes a TAP of this name and removes it at once. Throws when TAPs cannot be made. */
  async checkTap(name: string): Promise<void> {
    await this.#ask('making a TAP', { op: 'tap', name });
  }

  /**
   * Calls `onRemoved` when a program removes the table, until the result is disposed. It may also be called without cause,
   * and must not throw.
   */
  async watchTable(table: string, onRemoved: () => void): Promise<Disposable> {
    const callbacks = this.#watches.get(table) ?? new Set();
    this.#watches.set(table, callbacks);
    if (callbacks.size === 0) await this.#ask('watching the rules', { op: 'watch', table });
    callbacks.add(onRemoved);
    return { [Symbol.dispose]: () => void callbacks.delete(onRemoved) };
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#watches.clear();
    this.#child?.process.stdin.end();
  }

  async #ask(step: string, request: Record<string, unknown>): Promise<unknown> {
    if (this.#isClosed) throw new AppError('internal', `${step}: the network is closed`);
    this.#child ??= this.#start();
    const child = this.#child;
    try {
      return await child.client.ask(step, request);
    } catch (error) {
      // One that hangs is replaced by the next request.
      if (error instanceof DeadlineError) child.client.end('it did not answer in time');
      throw error;
    }
  }

  #start(): { process: ChildProcessWithoutNullStreams; client: JsonLineClient } {
    const child = spawn(this.#program, ['serve'], { env: {}, stdio: ['pipe', 'pipe', 'pipe'] });
    child.on('error', () => undefined);
    // Without free descriptors there are no pipes.
    if ((child.stdin as Writable | undefined) === undefined)
      throw new AppError('internal', `${this.#program} cannot be started`);
    const client = new JsonLineClient({
      input: child.stdout,
      output: child.stdin,
      timeoutMs: ANSWER_TIMEOUT_MS,
      onEvent: (event) => this.#hear(event),
    });
    let said = '';
    child.stderr.on('data', (chunk: Buffer) => (said = (said + chunk.toString('utf8')).slice(-MAX_STDERR)));
    const end = (reason: string): void => client.end(`${this.#program}: ${said.trim() || reason}`);
    child.once('error', (error) => end(error.message));
    child.once('exit', () => end('it ended'));
    void client.ended.then(() => this.#restart(child));
    child.unref();
    for (const stream of [child.stdin, child.stdout, child.stderr])
      (stream as unknown as { unref: () => void }).unref();
    return { process: child, client };
  }

  #hear(event: LineEvent): void {
    const { event: name, table } = Change.parse(event);
    for (const onRemoved of this.#watches.get(table) ?? []) onRemoved();
    if (name === 'unwatched') void this.#watchAgain(table);
  }

  /** Without a child changes of watched tables go unnoticed, so another is started for them. */
  #restart(ended: ChildProcessWithoutNullStreams): void {
    ended.kill('SIGKILL');
    this.#child = undefined;
    for (const [table, callbacks] of this.#watches) if (callbacks.size > 0) void this.#watchAgain(table);
  }

  /** Tries until the table is watched again, and then reports a removal, as one may have been missed. */
  async #watchAgain(table: string): Promise<void> {
    if (this.#rewatching.has(table)) return;
    this.#rewatching.add(table);
    for (let pauseMs = MIN_PAUSE_MS; !this.#isClosed; pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
      try {
        await this.#ask('watching the rules', { op: 'watch', table });
        break;
      } catch {
        // The next request of another kind shows the reason to its caller.
        await delay(pauseMs, undefined, { ref: false });
      }
    }
    this.#rewatching.delete(table);
    for (const onRemoved of this.#watches.get(table) ?? []) onRemoved();
  }
}
