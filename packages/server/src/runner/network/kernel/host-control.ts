/**
 * Client of `hostctl serve`, a child process that speaks netlink for the runner (hostctl/internal/serve). The child ends
 * when its standard input closes, so it never outlives the runner. A child that has died is replaced by the next request;
 * requests in progress then fail, and every watch reports a removal that may have been missed.
 */
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { createInterface } from 'node:readline';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { withDeadline } from '../../../lib/waiting/deadline.ts';

/** The kernel answers within the system call; a flush may walk a large table. */
const ANSWER_TIMEOUT_MS = 15_000;
/** Bounds what is kept of the child's errors. */
const MAX_STDERR = 2000;

const Line = z.union([
  z.object({ id: z.int(), result: z.unknown() }).strict(),
  z.object({ id: z.int(), error: z.string() }).strict(),
  z.object({ event: z.enum(['removed', 'unwatched']), table: z.string(), error: z.string().optional() }),
]);

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

interface Pending {
  resolve: (result: unknown) => void;
  reject: (error: AppError) => void;
}

/** Throws `internal`, with the kernel's words, when a request is refused or the program cannot be started. */
export class HostControl implements Disposable {
  readonly #program: string;
  readonly #pending = new Map<number, Pending>();
  readonly #watches = new Map<string, Set<() => void>>();
  #child: ChildProcessWithoutNullStreams | undefined;
  #lastId = 0;
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
    this.#child?.stdin.end();
  }

  async #ask(step: string, request: Record<string, unknown>): Promise<unknown> {
    if (this.#isClosed) throw new AppError('internal', `${step}: the network is closed`);
    const child = this.#child ?? this.#start();
    this.#lastId += 1;
    const id = this.#lastId;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#pending.set(id, { resolve, reject });
    child.stdin.write(`${JSON.stringify({ id, ...request })}\n`);
    try {
      return await withDeadline(step, ANSWER_TIMEOUT_MS, promise);
    } finally {
      this.#pending.delete(id);
    }
  }

  #start(): ChildProcessWithoutNullStreams {
    const child = spawn(this.#program, ['serve'], { env: {}, stdio: ['pipe', 'pipe', 'pipe'] });
    this.#child = child;
    let said = '';
    child.stderr.on('data', (chunk: Buffer) => (said = (said + chunk.toString('utf8')).slice(-MAX_STDERR)));
    // A write to a child that has died fails; its end rejects the request.
    child.stdin.on('error', () => undefined);
    child.once('error', (error) => this.#end(child, error.message));
    child.once('close', () => this.#end(child, said.trim() || 'it ended'));
    createInterface({ input: child.stdout }).on('line', (line) => this.#read(child, line));
    child.unref();
    for (const stream of [child.stdin, child.stdout, child.stderr])
      (stream as unknown as { unref: () => void }).unref();
    return child;
  }

  #read(child: ChildProcessWithoutNullStreams, text: string): void {
    const line = Line.safeParse(parseJson(text));
    if (!line.success) {
      child.kill('SIGKILL');
      this.#end(child, 'its answer is malformed');
      return;
    }
    const { data } = line;
    if ('event' in data) {
      for (const onRemoved of this.#watches.get(data.table) ?? []) onRemoved();
      if (data.event === 'unwatched') void this.#watchAgain(data.table);
      return;
    }
    const pending = this.#pending.get(data.id);
    if ('error' in data) pending?.reject(new AppError('internal', data.error));
    else pending?.resolve(data.result);
  }

  #end(child: ChildProcessWithoutNullStreams, reason: string): void {
    if (this.#child !== child) return;
    this.#child = undefined;
    for (const { reject } of this.#pending.values())
      reject(new AppError('internal', `${this.#program}: ${reason}`));
    for (const [table, callbacks] of this.#watches) {
      if (callbacks.size === 0) continue;
      void this.#watchAgain(table).then(() => callbacks.forEach((onRemoved) => onRemoved()));
    }
  }

  /** If it fails, the failure of the next request shows that the program cannot be started. */
  async #watchAgain(table: string): Promise<void> {
    if (this.#isClosed) return;
    await this.#ask('watching the rules', { op: 'watch', table }).catch(() => undefined);
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
