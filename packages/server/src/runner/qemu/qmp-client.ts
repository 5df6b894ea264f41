/**
 * QEMU's monitor (QMP): newline-separated JSON over a Unix socket. QEMU is trusted no more than its guest: an escaped
 * guest speaks in its place. Lines are bounded, every command has a deadline, and only the fields read here are used.
 */
import { EventEmitter } from 'node:events';
import type net from 'node:net';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { VmmError } from '../vm/vmm.ts';

const MAX_LINE_BYTES = 1 << 20;
const COMMAND_TIMEOUT_MS = 10_000;

export class QmpError extends VmmError {
  constructor(command: string, description: string) {
    super(`QMP ${command}: ${description}`);
    this.name = 'QmpError';
  }
}

export interface QmpEvent {
  event: string;
  data: Record<string, unknown>;
}

interface PendingCommand {
  command: string;
  resolve: (value: unknown) => void;
  reject: (error: Error) => void;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Emits `event` ({@link QmpEvent}) and `close`. */
export class QmpClient extends EventEmitter<{ event: [QmpEvent]; close: [] }> {
  readonly #socket: net.Socket;
  readonly #pending = new Map<number, PendingCommand>();
  #nextId = 1;
  #buffer = '';
  #closed = false;

  private constructor(socket: net.Socket) {
    super();
    this.#socket = socket;
    socket.setEncoding('utf8');
    socket.on('data', (text: string) => this.#onData(text));
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#onClose());
  }

  /** Performs the handshake on a connected socket. */
  static async open(socket: net.Socket): Promise<QmpClient> {
    const client = new QmpClient(socket);
    try {
      await client.execute('qmp_capabilities');
    } catch (error) {
      socket.destroy();
      throw error;
    }
    return client;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Runs one command. Throws {@link QmpError} when QEMU refuses it or goes away, and DeadlineError after the timeout.
   * QEMU may still run the command after that.
   */
  async execute(
    command: string,
    parameters: Record<string, unknown> = {},
    timeoutMs = COMMAND_TIMEOUT_MS,
  ): Promise<unknown> {
    if (this.#closed) throw new QmpError(command, 'the monitor is closed');
    const id = this.#nextId++;
    const answer = Promise.withResolvers<unknown>();
    this.#pending.set(id, { command, resolve: answer.resolve, reject: answer.reject });
    this.#socket.write(`${JSON.stringify({ execute: command, arguments: parameters, id })}\n`);
    return withDeadline(`QMP ${command}`, timeoutMs, answer.promise, () => this.#pending.delete(id));
  }

  close(): void {
    this.#socket.destroy();
  }

  #onData(text: string): void {
    this.#buffer += text;
    let end = this.#buffer.indexOf('\n');
    while (end >= 0) {
      this.#onLine(this.#buffer.slice(0, end));
      this.#buffer = this.#buffer.slice(end + 1);
      end = this.#buffer.indexOf('\n');
    }
    if (this.#buffer.length > MAX_LINE_BYTES) this.#socket.destroy();
  }

  #onLine(line: string): void {
    let message: unknown;
    try {
      message = JSON.parse(line);
    } catch {
      this.#socket.destroy();
      return;
    }
    if (!isRecord(message)) return;
    if (typeof message['event'] === 'string') {
      const data = isRecord(message['data']) ? message['data'] : {};
      this.emit('event', { event: message['event'], data });
    } else if (typeof message['id'] === 'number') {
      this.#settle(message['id'], message);
    }
  }

  #settle(id: number, message: Record<string, unknown>): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#pending.delete(id);
    if ('return' in message) pending.resolve(message['return']);
    else {
      const error = isRecord(message['error']) ? message['error']['desc'] : undefined;
      pending.reject(new QmpError(pending.command, typeof error === 'string' ? error : 'refused'));
    }
  }

  #onClose(): void {
    this.#closed = true;
    for (const pending of this.#pending.values()) {
      pending.reject(new QmpError(pending.command, 'QEMU closed the monitor'));
    }
    this.#pending.clear();
    this.emit('close');
  }
}
