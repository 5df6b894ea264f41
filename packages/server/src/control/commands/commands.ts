/**
 * Commands that outlive their clients: `/v1/runs/{id}/commands`. The row comes first, then the request to the guest, whose
 * id makes it repeatable; {@link CommandWatch} completes what a killed control leaves.
 */
import type { Readable } from 'node:stream';
import { AppError, type CommandRecord, type CreateCommandRequest } from '@coppice/contract';
import type { Reach } from '../accounts/organizations/reach.ts';
import { commandNotes } from '../audit/audited-process.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { RunnerAnswer } from '../placement/runner-connection.ts';
import type { RunnerCommands, StartGuestCommand } from '../placement/runner-commands.ts';
import { isUnanswered } from '../placement/runner-error.ts';
import type { Sandboxes } from '../sandbox/sandboxes.ts';
import type { SandboxDriver } from '../sandbox/live/sandbox-driver.ts';
import type { Subject } from '../sandbox/idempotency.ts';
import type { Clock } from '../time/clock.ts';
import { buildCommandRecord } from './command-record.ts';
import type { CommandFilter, CommandStore } from './command-store.ts';
import type { CommandRow } from './command-tables.ts';
import type { CommandWatch } from './command-watch.ts';

/** Output that the guest keeps of one command. */
const OUTPUT_BYTES = 64 << 20;
/** Of the counts in the record of a command that runs. */
const COUNT_DEADLINE_MS = 2_000;
const COMMAND_ID = /^cmd[0-9a-f]{20}$/;

export interface CommandsParts {
  sandboxes: Pick<Sandboxes, 'get' | 'getDriver'>;
  runner: RunnerCommands;
  store: CommandStore;
  watch: CommandWatch;
  audit: Pick<AuditLog, 'append'>;
  clock: Pick<Clock, 'wallMs'>;
}

export interface StartCommand {
  reach: Reach;
  sandboxId: string;
  /** From `newCommandId()`. */
  id: string;
  request: CreateCommandRequest;
}

/** Names a command within reach. */
export interface CommandAddress {
  reach: Reach;
  sandboxId: string;
  id: string;
}

export class Commands {
  readonly #parts: CommandsParts;

  constructor(parts: CommandsParts) {
    this.#parts = parts;
  }

  /** Resolves when the command runs. */
  async start({ reach, sandboxId, id, request }: StartCommand): Promise<CommandRecord> {
    const driver = await this.#parts.sandboxes.getDriver(reach, sandboxId);
    await driver.use(() => this.#startIn(driver, id, request));
    return this.get({ reach, sandboxId, id });
  }

  async #startIn({ row: sandbox }: SandboxDriver, id: string, request: CreateCommandRequest): Promise<void> {
    const { store, audit, clock, watch, runner } = this.#parts;
    const { command, tag = null } = request;
    using _ = watch.starting(sandbox, id);
    const started_at = clock.wallMs();
    const start_seq = await audit.append(sandbox.id, commandNotes(command, id).opening);
    const { organization_id, id: sandbox_id } = sandbox;
    const row = { id, organization_id, sandbox_id, guest_id: id, command, tag, started_at, start_seq };
    await store.insert({ ...row, state: 'starting' });
    try {
      await runner.start(sandbox_id, buildStart(id, request));
    } catch (error) {
      if (isUnanswered(error)) throw error;
      const duration_ms = clock.wallMs() - started_at;
      await audit.append(
        sandbox_id,
        commandNotes(command, id).closing({ exit_code: null, duration_ms, start_seq }),
      );
      await store.update({ id, state: 'starting' }, { state: 'lost', ended_at: clock.wallMs() });
      throw error;
    }
    await store.update({ id, state: 'starting' }, { state: 'running' });
  }

  /** Throws `not_found` if there is no such command within reach. */
  async get({ reach, sandboxId, id }: CommandAddress): Promise<CommandRecord> {
    const sandbox = await this.#parts.sandboxes.get(reach, sandboxId);
    const row = await this.#find(sandboxId, id);
    const isRunning = row.state === 'running' && sandbox.status === 'running';
    return buildCommandRecord(isRunning ? await this.#count(row) : row, sandbox);
  }

  /** Returns the row with what the command has written until now, if the guest answers soon. */
  async #count(row: CommandRow): Promise<CommandRow> {
    const inGuest = await this.#parts.runner.list(row.sandbox_id, COUNT_DEADLINE_MS).catch(() => []);
    const command = inGuest.find(({ id }) => id === row.guest_id);
    if (command === undefined) return row;
    return { ...row, output_bytes: command.output_bytes, dropped_bytes: command.dropped_bytes };
  }

  /** Lists newest first. */
  async list(
    reach: Reach,
    sandboxId: string,
    filter: CommandFilter,
  ): Promise<{ records: CommandRecord[]; createdAt: number[] }> {
    const sandbox = await this.#parts.sandboxes.get(reach, sandboxId);
    const rows = await this.#parts.store.list(sandboxId, filter);
    return {
      records: rows.map((row) => buildCommandRecord(row, sandbox)),
      createdAt: rows.map((row) => row.started_at),
    };
  }

  /** Returns the outcome of a start, for its Idempotency-Key. */
  async findSubject(address: CommandAddress): Promise<Subject<CommandRecord>> {
    const row = await this.#parts.store.find(address.sandboxId, address.id);
    if (row === undefined) return 'nothing';
    return row.state === 'starting' ? 'begun' : { status: 201, body: await this.get(address) };
  }

  /** Resolves with the record when the command has ended, or when `signal` fires. */
  async wait(address: CommandAddress, signal: AbortSignal): Promise<CommandRecord> {
    const driver = await this.#parts.sandboxes.getDriver(address.reach, address.sandboxId);
    return driver.use(async () => {
      for (;;) {
        const changed = this.#parts.watch.changed(address.sandboxId, signal);
        const record = await this.get(address);
        if (record.state !== 'running' || signal.aborted) return record;
        await changed;
      }
    });
  }

  /** Opens the output as frames of the agent. */
  async openOutput(
    address: CommandAddress,
    from: { position: number; follow: boolean },
  ): Promise<RunnerAnswer> {
    const { guest_id: id } = await this.#find(address.sandboxId, address.id);
    return this.#parts.runner.openOutput(address.sandboxId, { id, ...from });
  }

  async writeStdin(
    address: CommandAddress,
    input: { content: Readable; end: boolean; deadlineMs: number; signal: AbortSignal },
  ): Promise<void> {
    const { sandboxId } = address;
    const driver = await this.#parts.sandboxes.getDriver(address.reach, sandboxId);
    const { guest_id: id } = await this.#find(sandboxId, address.id);
    await driver.use(() => this.#parts.runner.writeStdin(sandboxId, { id, ...input }));
  }

  async signal(address: CommandAddress, signal: string): Promise<void> {
    const { sandboxId } = address;
    const driver = await this.#parts.sandboxes.getDriver(address.reach, sandboxId);
    const { guest_id: id } = await this.#find(sandboxId, address.id);
    await driver.use(() => this.#parts.runner.signal(sandboxId, id, signal));
  }

  async #find(sandboxId: string, id: string): Promise<CommandRow> {
    const row = COMMAND_ID.test(id) ? await this.#parts.store.find(sandboxId, id) : undefined;
    if (row !== undefined) return row;
    throw new AppError('not_found', `the sandbox has no command ${JSON.stringify(id.slice(0, 64))}`);
  }
}

function buildStart(id: string, request: CreateCommandRequest): StartGuestCommand {
  const { command, cwd, env, user, timeout, stdin } = request;
  return {
    id,
    command,
    cwd,
    env,
    user,
    timeout_ms: timeout * 1000,
    stdin: typeof stdin === 'string' ? stdin : '',
    keep_stdin: stdin === true,
    output_bytes: OUTPUT_BYTES,
  };
}
