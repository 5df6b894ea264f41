/** Applies the steps of a build in its sandbox, one after another, and keeps what they say about the image. */
import { posix } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, type BuildStep } from '@coppice/contract';
import type { ImageConfig } from '../../lib/protocol/runner-protocol.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import { newCommandId } from '../commands/command-ids.ts';
import type { Commands } from '../commands/commands.ts';
import { readKeptOutput } from '../commands/kept-output.ts';
import type { RunnerFiles } from '../placement/runner-files.ts';
import type { BuildLog } from './build-log.ts';

export interface StepParts {
  reach: Reach;
  sandboxId: string;
  commands: Pick<Commands, 'start' | 'openOutput' | 'get' | 'wait' | 'signal'>;
  files: Pick<RunnerFiles, 'makeDirectory'>;
  log: BuildLog;
  signal: AbortSignal;
  /** When the build must be done, in `performance.now()`. */
  deadlineMs: number;
}

const MAX_SHOWN = 300;
/** How often the output of a step is read again after the runner or the guest broke it off. */
const MAX_BREAKS = 20;
const BREAK_MS = 1000;

export class BuildSteps {
  readonly #parts: StepParts;
  #config: ImageConfig;
  /** Variables that steps have set; the guest has those of the image. */
  #env: Record<string, string> = {};
  #hasWorkdir = false;

  constructor(parts: StepParts, config: ImageConfig) {
    this.#parts = parts;
    this.#config = config;
  }

  /** The config of the image as the steps have left it. */
  get config(): ImageConfig {
    return this.#config;
  }

  /** Throws `build_failed` if the step fails. */
  async apply(step: BuildStep, index: number): Promise<void> {
    const { log, signal } = this.#parts;
    signal.throwIfAborted();
    await log.step(index, describeStep(step));
    const { run, env, workdir, user } = step;
    if (run !== undefined) return this.#run(run, index);
    if (env !== undefined) {
      this.#env = { ...this.#env, ...env };
      this.#config = { ...this.#config, env: { ...this.#config.env, ...env } };
    }
    if (user !== undefined) this.#config = { ...this.#config, user };
    if (workdir !== undefined) await this.#changeDirectory(workdir);
  }

  async #changeDirectory(workdir: string): Promise<void> {
    const { files, sandboxId } = this.#parts;
    const path = posix.resolve('/', this.#config.workdir, workdir);
    await files.makeDirectory(sandboxId, { path, parents: true, user: '0:0' });
    this.#config = { ...this.#config, workdir: path };
    this.#hasWorkdir = true;
  }

  async #run(run: string | string[], index: number): Promise<void> {
    const { commands, reach, sandboxId, deadlineMs } = this.#parts;
    const id = newCommandId();
    const { user, workdir } = this.#config;
    const leftS = Math.max(1, Math.ceil((deadlineMs - performance.now()) / 1000));
    const request = {
      command: typeof run === 'string' ? run : `exec ${run.map(quote).join(' ')}`,
      cwd: this.#hasWorkdir ? workdir : workdir === '' ? '/' : workdir,
      ...(user !== '' && { user }),
      env: this.#env,
      detached: true,
      timeout: leftS,
    };
    await commands.start({ reach, sandboxId, id, request });
    const exitCode = await this.#follow({ reach, sandboxId, id });
    if (exitCode !== 0) throw this.#failed(run, index, exitCode);
  }

  /** Logs the output to its end. Returns the exit code. */
  async #follow(address: { reach: Reach; sandboxId: string; id: string }): Promise<number> {
    const { commands, log, signal } = this.#parts;
    let position = 0;
    for (let breaks = 0; ;) {
      try {
        const { stream } = await commands.openOutput(address, { position, follow: true });
        const end = (): void => void stream.destroy();
        signal.addEventListener('abort', end, { once: true });
        try {
          for await (const one of readKeptOutput(stream, position)) {
            if (one.type === 'exit') return one.exit_code;
            breaks = 0;
            if (one.type === 'dropped') position = one.next_offset;
            else {
              await log.output(one.type, one.data);
              position = one.offset + one.data.length;
            }
          }
        } finally {
          signal.removeEventListener('abort', end);
        }
      } catch (error) {
        signal.throwIfAborted();
        breaks += 1;
        if (breaks > MAX_BREAKS || !(error instanceof AppError)) throw error;
      }
      const record = await commands.get(address);
      if (record.state === 'lost')
        throw new AppError('build_failed', 'the sandbox of the build ended before the step');
      await delay(BREAK_MS, undefined, { signal });
    }
  }

  #failed(run: string | string[], index: number, exitCode: number): AppError {
    const { tail } = this.#parts.log;
    const last = tail === '' ? 'it wrote nothing' : `its last output:\n${tail}`;
    const step = shorten(typeof run === 'string' ? run : JSON.stringify(run));
    return new AppError('build_failed', `steps[${index}]: ${step} ended with exit code ${exitCode}; ${last}`);
  }
}

export function describeStep(step: BuildStep): string {
  const [name, value] = Object.entries(step).find(([, given]) => given !== undefined) ?? ['', ''];
  // Values of variables may be secrets that should not be in a log; names suffice.
  if (name === 'env') return `ENV ${Object.keys(value as Record<string, string>).join(' ')}`;
  return shorten(`${name.toUpperCase()} ${typeof value === 'string' ? value : JSON.stringify(value)}`);
}

function shorten(text: string): string {
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN).toWellFormed()}…` : text;
}

/** Quotes a word for the shell. */
function quote(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}
