/**
 * Commands that outlive their clients: `/v1/runs/{id}/commands`. The row and the entry of the start come first, then the
 * request to the guest, which is repeated until it is answered: the guest starts a command with the same id once.
 * {@link CommandWatch} completes what a killed control leaves.
 */
import type { Readable } from 'node:stream';
import {
  AppError,
  isFinal,
  type ErrorCode,
  type CommandRecord,
  type CreateCommandRequest,
  type SandboxState,
} from '@coppice/contract';
import type { Reach } from '../accounts/organizations/reach.ts';
import { commandNotes } from '../audit/audited-process.ts';
import type { ControlLimits } from '../control-config.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { RunnerAnswer } from '../placement/runner-connection.ts';
import { insist } from '../placement/insist.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import type { GuestCommand, StartGuestCommand } from '../placement/runner-commands.ts';
import type { Environments } from '../sandbox/environment/environments.ts';
import type { Sandboxes } from '../sandbox/sandboxes.ts';
import type { SandboxDriver } from '../sandbox/live/sandbox-driver.ts';
import type { Subject } from '../sandbox/idempotency.ts';
import type { Clock } from '../time/clock.ts';
import { isOpen } from './command-changes.ts';
import { buildCommandRecord } from './command-record.ts';
import type { CommandFilter, CommandStore } from './command-store.ts';
import { OPEN_STATES, type CommandRow } from './command-tables.ts';
import type { CommandWatch } from './command-watch.ts';

/** Output that the guest keeps of one command. */
const OUTPUT_BYTES = 64 << 20;
/** Of the counts in the record of a command that runs. */
const COUNT_DEADLINE_MS = 2_000;
/** Of a start, with all its repetitions. */
const START_DEADLINE_MS = 60_000;
const COMMAND_ID = /^cmd[0-9a-f]{20}$/;

export interface CommandsParts {
  sandboxes: Pick<Sandboxes, 'get' | 'getDriver'>;
  environments: Pick<Environments, 'fill'>;
  /** Throws `unavailable` for a sandbox that is not at a runner of this control. */
  runnerOf: (sandboxId: string) => RunnerClient;
  store: CommandStore;
  watch: CommandWatch;
  audit: Pick<AuditLog, 'commit'>;
  clock: Pick<Clock, 'wallMs'>;
  limits: Pick<ControlLimits, 'runnerOutageDeadlineMs'>;
}

export interface ListCommands extends Omit<CommandFilter, 'states'> {
  state?: CommandRecord['state'] | undefined;
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
    const started = await driver.use(() => this.#startIn(driver, id, request));
    const sandbox = await this.#parts.sandboxes.get(reach, sandboxId);
    return buildCommandRecord(withCounts(await this.#find(sandboxId, id), started), sandbox);
  }

  async #startIn(driver: SandboxDriver, id: string, request: CreateCommandRequest): Promise<GuestCommand> {
    const { store, watch, environments } = this.#parts;
    const filled = await environments.fill(driver.row, request);
    using _ = watch.starting(driver, id);
    await this.#insert(driver, id, request);
    const started = await this.#ask(driver, buildStart(id, filled)).catch(async (error: unknown) => {
      if (!(error instanceof AppError) || NO_ANSWER.has(error.code)) throw outcomeUnknown(error);
      await watch.recorder.lose(await this.#find(driver.row.id, id));
      throw error;
    });
    await store.update({ id, state: 'starting' }, { state: 'running' });
    return started;
  }

  async #insert(
    { row: { id: sandbox_id, organization_id } }: SandboxDriver,
    id: string,
    { command, tag }: CreateCommandRequest,
  ): Promise<void> {
    const { store, audit, clock } = this.#parts;
    const started_at = clock.wallMs();
    const row = { id, organization_id, sandbox_id, guest_id: id, command, tag: tag ?? null, started_at };
    await audit.commit(sandbox_id, commandNotes(command, id).opening, (transaction, start_seq) =>
      store.within(transaction).insert({ ...row, state: 'starting', start_seq }),
    );
  }

  /** The caller does not see a short outage of the runner. */
  #ask({ row, runner }: SandboxDriver, start: StartGuestCommand): Promise<GuestCommand> {
    const { limits } = this.#parts;
    const patience = {
      deadlineMs: START_DEADLINE_MS,
      outageDeadlineMs: limits.runnerOutageDeadlineMs,
      onRepeat: () => undefined,
    };
    return insist(patience, (leftMs) => runner.commands.start(row.id, start, leftMs));
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
    const inGuest = await this.#listInGuest(row.sandbox_id).catch(() => []);
    const command = inGuest.find(({ id }) => id === row.guest_id);
    return command === undefined ? row : withCounts(row, command);
  }

  async #listInGuest(sandboxId: string): Promise<GuestCommand[]> {
    return this.#parts.runnerOf(sandboxId).commands.list(sandboxId, COUNT_DEADLINE_MS);
  }

  /** Lists newest first. */
  async list(
    reach: Reach,
    sandboxId: string,
    { state, ...filter }: ListCommands,
  ): Promise<{ records: CommandRecord[]; createdAt: number[] }> {
    const sandbox = await this.#parts.sandboxes.get(reach, sandboxId);
    const states = state === undefined ? {} : { states: rowStatesOf(state, sandbox.status) };
    const rows = await this.#parts.store.list(sandboxId, { ...filter, ...states });
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
  async wait(
    address: CommandAddress,
    { signal, mayWake }: { signal: AbortSignal; mayWake: boolean },
  ): Promise<CommandRecord> {
    const { reach, sandboxId, id } = address;
    const record = await this.get(address);
    if (record.state !== 'running') return record;
    const driver = await this.#parts.sandboxes.getDriver(reach, sandboxId);
    // A sandbox that is being destroyed is not used any more; it ends its commands in a moment.
    if (driver.live.operations.current === 'destroying') await this.#ended(sandboxId, id, signal);
    else await driver.use(() => this.#ended(sandboxId, id, signal), { mayWake });
    return this.get(address);
  }

  async #ended(sandboxId: string, id: string, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      using change = this.#parts.watch.expectChange(id);
      if (!isOpen(await this.#find(sandboxId, id))) return;
      await change.happened(signal);
    }
  }

  /** Opens the output as frames of the agent. */
  async openOutput(
    address: CommandAddress,
    from: { position: number; follow: boolean },
  ): Promise<RunnerAnswer> {
    const { guest_id: id } = await this.#find(address.sandboxId, address.id);
    return this.#parts.runnerOf(address.sandboxId).commands.openOutput(address.sandboxId, { id, ...from });
  }

  async writeStdin(
    address: CommandAddress,
    input: { content: Readable; end: boolean; deadlineMs: number; signal: AbortSignal },
  ): Promise<void> {
    const { sandboxId } = address;
    const driver = await this.#parts.sandboxes.getDriver(address.reach, sandboxId);
    const { guest_id: id } = await this.#find(sandboxId, address.id);
    await driver.use(() => driver.runner.commands.writeStdin(sandboxId, { id, ...input }));
  }

  async signal(address: CommandAddress, signal: string): Promise<void> {
    const { sandboxId } = address;
    const driver = await this.#parts.sandboxes.getDriver(address.reach, sandboxId);
    const { guest_id: id } = await this.#find(sandboxId, address.id);
    await driver.use(() => driver.runner.commands.signal(sandboxId, id, signal));
  }

  async #find(sandboxId: string, id: string): Promise<CommandRow> {
    const row = COMMAND_ID.test(id) ? await this.#parts.store.find(sandboxId, id) : undefined;
    if (row !== undefined) return row;
    throw new AppError('not_found', `the sandbox has no command ${JSON.stringify(id.slice(0, 64))}`);
  }
}

/** Answers after which the command may run: those of the guest that could not be read, too. */
const NO_ANSWER: ReadonlySet<ErrorCode> = new Set(['unavailable', 'outcome_unknown', 'guest_unreachable']);

/** A caller that repeats the request with another id would run the command twice. */
function outcomeUnknown(cause: unknown): AppError {
  if (cause instanceof AppError && cause.code === 'outcome_unknown') return cause;
  const message =
    'the sandbox gave no answer; whether the command runs is not known: list the commands, or repeat the request with the same Idempotency-Key';
  return new AppError('outcome_unknown', message, { cause });
}

/** Returns the row with the counts of a report, if the command runs: at its end they are in the row. */
function withCounts(row: CommandRow, { output_bytes, dropped_bytes }: GuestCommand): CommandRow {
  return row.state === 'running' ? { ...row, output_bytes, dropped_bytes } : row;
}

/** States of rows that a caller sees as this one. */
function rowStatesOf(state: CommandRecord['state'], sandbox: SandboxState): readonly CommandRow['state'][] {
  if (state === 'running') return isFinal(sandbox) ? [] : OPEN_STATES;
  return state === 'lost' && isFinal(sandbox) ? ['lost', ...OPEN_STATES] : [state];
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
