/** One run of the egress process. Its messages are checked, as it reads untrusted data from guests. */
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import {
  EgressMessage,
  type Ask,
  type EgressPorts,
  type EgressStart,
  type RunnerMessage,
} from '../../../lib/protocol/egress-messages.ts';
import { withDeadline } from '../../../lib/waiting/deadline.ts';

const READY_TIMEOUT_MS = 30_000;
/** Includes the time in which the process judges open flows again before it answers. */
const ANSWER_TIMEOUT_MS = 5000;

type Notes = Extract<EgressMessage, { type: 'notes' }>;
type Answer = Extract<EgressMessage, { type: 'done' | 'counters' }>;

export interface EgressProgram {
  path: string;
  args: readonly string[];
  /** Path of hostctl, which finds for the process where redirected connections were meant to go. */
  hostctl: string;
  /**
   * Whether the process must run without root privileges. It drops them itself after it has loaded its code, which
   * other users may not read. A process that still has them is killed.
   */
  mustBeUnprivileged: boolean;
}

export interface EgressSessionOptions {
  program: EgressProgram;
  start: Omit<EgressStart, 'type'>;
  onNotes: (notes: Notes, session: EgressSession) => void;
  /** Ends the process, ready or not. */
  signal: AbortSignal;
  log: Logger;
}

/** The process ended before it answered; the caller asks the next one. */
export class EgressEndedError extends AppError {
  constructor() {
    super('unavailable', 'the egress process ended; the runner restarts it, try again later');
  }
}

export class EgressSession {
  readonly #child: ChildProcess;
  readonly #options: EgressSessionOptions;
  readonly #questions = new Map<number, PromiseWithResolvers<Answer>>();
  readonly #ready = Promise.withResolvers<EgressPorts>();
  readonly #ended = Promise.withResolvers<string>();
  readonly #onAbort = (): void => this.kill();
  #lastId = 0;

  private constructor(options: EgressSessionOptions) {
    const { program } = options;
    this.#options = options;
    // There may be no waiter, so an unhandled rejection must not end the runner.
    this.#ready.promise.catch(() => undefined);
    this.#child = startProgram(program);
    this.#child.on('message', (message) => this.#hear(message));
    this.#child.once('error', (error) => this.#end(error.message));
    this.#child.once('exit', (code, signal) => this.#end(signal ?? `code ${code ?? 1}`));
    this.#child.once('disconnect', () => this.kill());
    options.signal.addEventListener('abort', this.#onAbort);
    this.#send({ type: 'start', ...options.start });
  }

  /** Starts a process; settles when it is ready. Rejects, and leaves no process, when it is not ready in time. */
  static async start(options: EgressSessionOptions): Promise<{ session: EgressSession; ports: EgressPorts }> {
    const session = new EgressSession(options);
    try {
      const step = 'start of the egress process';
      const ports = await withDeadline(step, READY_TIMEOUT_MS, session.#ready.promise);
      if (options.program.mustBeUnprivileged) assertUnprivileged(session.#child.pid ?? 0);
      return { session, ports };
    } catch (error) {
      session.kill();
      throw error;
    }
  }

  /** Settles when the process ends, with how it ended. */
  get ended(): Promise<string> {
    return this.#ended.promise;
  }

  /** Asks the process. Kills one that does not answer in time: the next one receives everything again. */
  async ask(question: Ask): Promise<Answer> {
    if (!this.#child.connected) throw new EgressEndedError();
    this.#lastId += 1;
    const id = this.#lastId;
    const answer = Promise.withResolvers<Answer>();
    this.#questions.set(id, answer);
    this.#send({ ...question, id });
    return await withDeadline(
      `answer of the egress process to ${question.type}`,
      ANSWER_TIMEOUT_MS,
      answer.promise,
      () => {
        this.#questions.delete(id);
        this.kill();
      },
    );
  }

  /** Tells the process that the notes of this message are durable. */
  acknowledge(id: number): void {
    this.#send({ type: 'noted', id });
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  /** Errors are ignored: the end of the channel follows. */
  #send(message: RunnerMessage): void {
    if (this.#child.connected) this.#child.send(message, () => undefined);
  }

  #hear(message: unknown): void {
    const parsed = EgressMessage.safeParse(message);
    if (!parsed.success) {
      this.#options.log.error(
        { err: parsed.error },
        'the egress process sent an invalid message; it is killed',
      );
      return this.kill();
    }
    const said = parsed.data;
    if (said.type === 'ready') this.#ready.resolve(said.ports);
    else if (said.type === 'notes') this.#options.onNotes(said, this);
    else this.#settle(said);
  }

  #settle(answer: Answer): void {
    this.#questions.get(answer.id)?.resolve(answer);
    this.#questions.delete(answer.id);
  }

  #end(how: string): void {
    const reason = new EgressEndedError();
    this.#ready.reject(new AppError('internal', `the egress process ended before it was ready (${how})`));
    for (const question of this.#questions.values()) question.reject(reason);
    this.#questions.clear();
    this.#options.signal.removeEventListener('abort', this.#onAbort);
    this.#ended.resolve(how);
  }
}

/** Each end of hostctl's pipes is the egress process's alone, so hostctl ends with it. */
function startProgram({ path, args, hostctl }: EgressProgram): ChildProcess {
  const originals = spawn(hostctl, ['originals'], { env: {}, stdio: ['pipe', 'pipe', 'inherit'] });
  // The egress process notices that hostctl is missing, and ends.
  originals.on('error', () => undefined);
  // Without free descriptors there are no pipes.
  if ((originals.stdin as Writable | undefined) === undefined)
    throw new AppError('internal', `${hostctl} cannot be started`);
  try {
    return fork(path, args, {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc', originals.stdin, originals.stdout],
      env: environmentOf(process.env),
    });
  } finally {
    originals.stdin.destroy();
    originals.stdout.destroy();
  }
}

/** Secrets that an operator may put into the environment: an attacker in that process could read them from memory. */
const SECRETS: ReadonlySet<string> = new Set([
  'COPPICE_BOOTSTRAP_KEY',
  'COPPICE_BOOTSTRAP_INVITATION',
  'COPPICE_METRICS_TOKEN',
  'DATABASE_URL',
]);

function environmentOf(own: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(own).filter(([name]) => !SECRETS.has(name)));
}

/** Throws `internal` when any of the process's four user ids is root. */
function assertUnprivileged(pid: number): void {
  const status = readFileSync(`/proc/${pid}/status`, 'latin1');
  const ids = /^Uid:\s+(.*)$/mu.exec(status)?.[1]?.split(/\s+/u) ?? ['0'];
  if (ids.includes('0'))
    throw new AppError('internal', 'the egress process runs as root: it may not serve guests');
}
