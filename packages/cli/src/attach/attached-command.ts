/**
 * Runs a command whose input, output and signals are those of this process.
 *
 *   Ctrl-C ─► SIGINT to the command ─ Ctrl-C ─► SIGKILL ─ no end within a second ─► the connection is closed, which kills it
 */
import {
  CoppiceError,
  type Sandbox,
  type SpawnedCommand,
  type SpawnOptions,
} from '../../../sdk/src/index.ts';
import { EXIT } from '../output/failure.ts';
import { write, type Output } from '../output/output.ts';
import { Ended, withSignals } from './signals.ts';

/** Signals wait behind input that the command does not read. A kill must not. */
const KILL_DEADLINE_MS = 1000;

export interface AttachedOptions extends SpawnOptions {
  /** False: the command gets no input. */
  hasInput: boolean;
}

/**
 * Runs the command to its end and returns its exit code. Throws Ended if a signal ended this process first, also while the
 * connection opens.
 */
export async function runAttached(
  sandbox: Sandbox,
  command: string,
  { options, out }: { options: AttachedOptions; out: Output },
): Promise<number> {
  const { hasInput, ...spawn } = options;
  const controller = new AbortController();
  const { signal } = controller;
  const abort = (reason: Ended): void => controller.abort(reason);
  let spawned: SpawnedCommand | undefined;
  const onInterrupt = (count: number): void => {
    if (spawned === undefined) return abort(new Ended('SIGINT'));
    if (count === 1) return spawned.kill('INT');
    spawned.kill('KILL');
    setTimeout(() => abort(new Ended('SIGINT')), KILL_DEADLINE_MS).unref();
  };
  return withSignals({ onInterrupt, onEnd: abort }, async () => {
    try {
      spawned = await sandbox.spawn(command, { ...spawn, signal });
      return await relay(spawned, { hasInput, out });
    } catch (error) {
      throw signal.aborted ? signal.reason : error;
    } finally {
      await spawned?.close();
    }
  });
}

async function relay(
  command: SpawnedCommand,
  { hasInput, out }: { hasInput: boolean; out: Output },
): Promise<number> {
  const failed = new Promise<never>((_, reject) => {
    pumpInput(command, hasInput).catch((error: unknown) => {
      // The output, which is read to its end first, says how the command or the connection ended.
      if (!(error instanceof CoppiceError) || error.code === 'timeout') reject(error);
    });
  });
  return Promise.race([pumpOutput(command, out), failed]);
}

async function pumpInput(command: SpawnedCommand, hasInput: boolean): Promise<void> {
  if (hasInput) for await (const chunk of process.stdin) await command.stdin.write(chunk as Uint8Array);
  await command.stdin.end();
}

async function pumpOutput(command: SpawnedCommand, out: Output): Promise<number> {
  const output = command[Symbol.asyncIterator]();
  for (;;) {
    const { value, done } = await output.next();
    if (done === true) {
      if (out.isJson) await out.event({ type: 'exit', ...value });
      else if (value.timedOut) out.note('coppice: the command exceeded its time limit and was killed');
      return value.exitCode;
    }
    if (out.isJson) await out.event(value);
    else await write(process[value.type], value.data);
  }
}

/** Exit code of the command line for an error of an attached command. */
export function toAttachedCode(error: unknown): number {
  return error instanceof Ended ? error.exitCode : EXIT.attached;
}
