/** Commands of the fake runner's guests that outlive their clients. A test writes their output and ends them. */
import type { ServerHttp2Stream } from 'node:http2';
import { AppError } from '@coppice/contract';
import { encodeFrame, FRAME } from '../../../lib/protocol/frames.ts';
import { answer, readAll } from './fake-answers.ts';

export interface FakeGuestCommand {
  id: string;
  head: Record<string, unknown>;
  output: { type: number; data: Buffer }[];
  /** How many of the first bytes of the output are kept no more. */
  dropped: number;
  stdin: string;
  signals: string[];
  exit: { exit_code: number; timed_out: boolean } | undefined;
}

type Intercept = (stream: ServerHttp2Stream, vmId: string, action: string) => Promise<boolean> | boolean;

export class FakeCommands {
  readonly #byVm = new Map<string, Map<string, FakeGuestCommand>>();
  readonly #watches = new Map<string, Set<ServerHttp2Stream>>();
  readonly #readers = new Map<FakeGuestCommand, Set<() => void>>();
  /** Called before a command starts; may throw the error that the start answers. */
  onStart: (head: Record<string, unknown>) => Promise<void> | void = () => undefined;

  /** May answer a request itself, as a hostile guest does: returns whether it has. */
  intercept: Intercept = () => false;

  /** Answers a request to the agent. Returns false if it is not about commands. */
  async take(
    stream: ServerHttp2Stream,
    vmId: string,
    action: string,
    query: URLSearchParams,
  ): Promise<boolean> {
    if (action.includes('/commands') && (await this.intercept(stream, vmId, action))) return true;
    if (action === 'POST /agent/commands') await this.#start(stream, vmId);
    else if (action === 'GET /agent/commands') answer(stream, 200, this.list(vmId).map(describe));
    else if (action === 'GET /agent/commands/watch') this.#watch(stream, vmId);
    else if (action === 'GET /agent/commands/output') this.#send(stream, this.find(vmId, query), query);
    else if (action === 'POST /agent/commands/stdin')
      await this.#write(stream, this.find(vmId, query), query);
    else if (action === 'POST /agent/commands/signal') await this.#signal(stream, this.find(vmId, query));
    else return false;
    return true;
  }

  list(vmId: string): FakeGuestCommand[] {
    return [...(this.#byVm.get(vmId)?.values() ?? [])];
  }

  find(vmId: string, query: URLSearchParams | string): FakeGuestCommand {
    const id = typeof query === 'string' ? query : (query.get('id') ?? '');
    const command = this.#byVm.get(vmId)?.get(id);
    if (command === undefined) throw new AppError('invalid_state', `the guest has no command ${id} any more`);
    return command;
  }

  /** Writes output of a command. */
  print(command: FakeGuestCommand, text: string | Buffer, type: number = FRAME.stdout): void {
    command.output.push({ type, data: Buffer.from(text) });
    this.#notify(command);
  }

  /** Ends a command, and tells all that watch its guest. */
  end(vmId: string, command: FakeGuestCommand, exitCode: number, timedOut = false): void {
    command.exit = { exit_code: exitCode, timed_out: timedOut };
    this.#notify(command);
    for (const watch of this.#watches.get(vmId) ?? []) watch.write(`${JSON.stringify(describe(command))}\n`);
  }

  /** Gives a copy of a guest its commands. */
  copy(from: string, to: string): void {
    this.#byVm.set(to, new Map(this.list(from).map((command) => [command.id, copyCommand(command)])));
  }

  isWatched(vmId: string): boolean {
    return (this.#watches.get(vmId)?.size ?? 0) > 0;
  }

  /** Breaks the streams that watch a guest, as a restart of the runner does. */
  cutWatches(vmId: string): void {
    for (const watch of this.#watches.get(vmId) ?? []) watch.destroy();
  }

  async #start(stream: ServerHttp2Stream, vmId: string): Promise<void> {
    const head = JSON.parse((await readAll(stream)).toString('utf8')) as Record<string, unknown>;
    const id = String(head['id']);
    const commands = this.#byVm.get(vmId) ?? new Map<string, FakeGuestCommand>();
    this.#byVm.set(vmId, commands);
    if (!commands.has(id)) {
      await this.onStart(head);
      const stdin = typeof head['stdin'] === 'string' ? head['stdin'] : '';
      commands.set(id, { id, head, output: [], dropped: 0, stdin, signals: [], exit: undefined });
    }
    answer(stream, 200, describe(this.find(vmId, id)));
  }

  #watch(stream: ServerHttp2Stream, vmId: string): void {
    stream.respond({ ':status': 200 });
    for (const command of this.list(vmId))
      if (command.exit !== undefined) stream.write(`${JSON.stringify(describe(command))}\n`);
    stream.write('\n');
    const watches = this.#watches.get(vmId) ?? new Set();
    this.#watches.set(vmId, watches.add(stream));
    stream.on('close', () => watches.delete(stream));
  }

  #send(stream: ServerHttp2Stream, command: FakeGuestCommand, query: URLSearchParams): void {
    stream.respond({ ':status': 200 });
    let position = Math.max(Number(query.get('position')), command.dropped);
    stream.write(encodeFrame(FRAME.position, Buffer.from(JSON.stringify({ position }))));
    const sendNew = (): void => {
      let offset = 0;
      for (const { type, data } of command.output) {
        const rest = data.subarray(Math.max(0, position - offset));
        offset += data.length;
        if (offset <= position || rest.length === 0) continue;
        stream.write(encodeFrame(type, rest));
        position = offset;
      }
      if (command.exit !== undefined)
        stream.end(encodeFrame(FRAME.exit, Buffer.from(JSON.stringify(command.exit))));
      else if (query.get('follow') !== 'true') stream.end();
    };
    const readers = this.#readers.get(command) ?? new Set();
    this.#readers.set(command, readers.add(sendNew));
    stream.on('close', () => readers.delete(sendNew));
    sendNew();
  }

  async #write(stream: ServerHttp2Stream, command: FakeGuestCommand, query: URLSearchParams): Promise<void> {
    command.stdin += (await readAll(stream)).toString('utf8');
    if (query.get('end') === 'true') command.stdin += '<end>';
    answer(stream, 200, {});
  }

  async #signal(stream: ServerHttp2Stream, command: FakeGuestCommand): Promise<void> {
    if (command.exit !== undefined) throw new AppError('invalid_state', 'the command has ended');
    const { signal } = JSON.parse((await readAll(stream)).toString('utf8')) as { signal: string };
    command.signals.push(signal);
    answer(stream, 200, {});
  }

  #notify(command: FakeGuestCommand): void {
    for (const read of this.#readers.get(command) ?? []) read();
  }
}

function copyCommand(command: FakeGuestCommand): FakeGuestCommand {
  return { ...command, output: [...command.output], signals: [...command.signals] };
}

function describe({ id, output, dropped, exit }: FakeGuestCommand): Record<string, unknown> {
  const bytes = output.reduce((sum, { data }) => sum + data.length, 0);
  const ended = exit === undefined ? {} : { ended_ago_ms: 0, exit };
  return { id, age_ms: 1, output_bytes: bytes, dropped_bytes: dropped, ...ended };
}
