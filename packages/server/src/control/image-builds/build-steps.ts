/** Applies the steps of a build in its sandbox, one after another. */
import { posix } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Reach } from '../accounts/organizations/reach.ts';
import { newCommandId } from '../commands/command-ids.ts';
import type { Commands } from '../commands/commands.ts';
import { readKeptOutput } from '../commands/kept-output.ts';
import type { RunnerFiles } from '../placement/runner-files.ts';
import type { BuildLog } from './build-log.ts';
import { packSelection } from './copy-files.ts';
import { isEmpty, type CopySources } from './copy-sources.ts';
import { refuseArchives } from './refuse-archives.ts';
import { outliveRunner, type Outliving } from './outlive-runner.ts';
import { namesDirectory, type PlannedStep } from './planned-step.ts';
import type { StepScope } from './step-scope.ts';

export interface StepParts extends Outliving {
  reach: Reach;
  sandboxId: string;
  commands: Pick<Commands, 'start' | 'openOutput' | 'get'>;
  files: Pick<RunnerFiles, 'makeDirectory' | 'stat' | 'unpack'>;
  copies: CopySources | undefined;
  log: BuildLog;
}

interface RunDetails {
  /** Where the step is, for errors. */
  index: number;
  line: number | undefined;
  isScript: boolean;
}

const MAX_SHOWN = 300;
/** How often the output of a step is read again after the runner or the guest broke it off. */
const MAX_BREAKS = 20;
const BREAK_MS = 1000;

export class BuildSteps {
  readonly #parts: StepParts;
  readonly #scope: StepScope;

  constructor(parts: StepParts, scope: StepScope) {
    this.#parts = parts;
    this.#scope = scope;
  }

  /** Throws `build_failed` if the step fails. */
  async apply(planned: PlannedStep, index: number): Promise<void> {
    const { log, signal } = this.#parts;
    signal.throwIfAborted();
    await log.step(index, describeStep(planned), { cached: false });
    const step = this.#scope.expand(planned);
    const { run, workdir, copy, isScript = false } = step;
    if (run !== undefined) await this.#run(run, { index, line: planned.line, isScript });
    if (copy !== undefined) await this.#copy(copy, { index, isAdd: step.isAdd === true });
    if (workdir !== undefined) await this.#makeDirectory(workdir);
    this.#scope.take(step);
  }

  async #copy(
    { from_path, to, owner = '0:0', mode }: NonNullable<PlannedStep['copy']>,
    { index, isAdd }: { index: number; isAdd: boolean },
  ): Promise<void> {
    const { files, sandboxId, copies, log, signal, deadlineMs } = this.#parts;
    if (copies === undefined)
      throw new AppError(
        'build_failed',
        `copy of ${JSON.stringify(from_path)}: the build has no context; upload one`,
      );
    const { context } = copies;
    const selection = await copies.select(index, this.#scope);
    if (isEmpty(selection)) return log.note(shorten(`nothing of the context matches ${from_path}`));
    if (isAdd) await refuseArchives(context, selection, signal);
    const target = this.#scope.resolve(to);
    const isInto = selection.hasDirectory || selection.files > 1 || namesDirectory(to);
    const intoDirectory = isInto || (await this.#isDirectory(target));
    // Files that were unpacked before the runner restarted are written again.
    await outliveRunner(this.#parts, async () => {
      const content = packSelection(context, selection, {
        name: intoDirectory ? undefined : posix.basename(target),
        mode: mode === undefined ? undefined : Number.parseInt(mode, 8),
      });
      try {
        await files.unpack(sandboxId, {
          path: intoDirectory ? target : posix.dirname(target),
          format: 'tar',
          user: ownerOf(owner),
          content,
          deadlineMs: Math.max(1, deadlineMs - performance.now()),
          signal,
        });
      } finally {
        // A request that is refused before it is sent leaves its body open.
        content.destroy();
      }
    });
  }

  async #isDirectory(path: string): Promise<boolean> {
    try {
      const { files, sandboxId } = this.#parts;
      return (await outliveRunner(this.#parts, () => files.stat(sandboxId, path))).type === 'dir';
    } catch (error) {
      if (error instanceof AppError && error.code === 'file_not_found') return false;
      throw error;
    }
  }

  async #makeDirectory(workdir: string): Promise<void> {
    const { files, sandboxId } = this.#parts;
    // The agent makes it as root, also where the user may not write, and gives all that it makes to the user. So does Docker.
    const user = ownerOf(this.#scope.config.user || '0:0');
    const directory = { path: this.#scope.resolve(workdir), parents: true, user };
    await outliveRunner(this.#parts, () => files.makeDirectory(sandboxId, directory));
  }

  async #run(run: string | string[], details: RunDetails): Promise<void> {
    const { commands, reach, sandboxId, deadlineMs } = this.#parts;
    const id = newCommandId();
    const { user, workdir } = this.#scope.config;
    const leftS = Math.max(1, Math.ceil((deadlineMs - performance.now()) / 1000));
    const request = {
      command: writeCommand(run, details.isScript),
      cwd: workdir === '' ? '/' : workdir,
      ...(user !== '' && { user }),
      env: this.#scope.variables,
      detached: true,
      timeout: leftS,
    };
    await commands.start({ reach, sandboxId, id, request });
    const exitCode = await this.#follow({ reach, sandboxId, id });
    if (exitCode !== 0) throw this.#failed(run, details, exitCode);
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
        // It may have fired while the stream was opened.
        if (signal.aborted) end();
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

  #failed(run: string | string[], { index, line }: RunDetails, exitCode: number): AppError {
    const { tail } = this.#parts.log;
    const last = tail === '' ? 'it wrote nothing' : `its last output:\n${tail}`;
    const where = line === undefined ? `steps[${index}]` : `dockerfile: line ${line}`;
    const step = shorten(typeof run === 'string' ? run : JSON.stringify(run));
    return new AppError('build_failed', `${where}: ${step} ended with exit code ${exitCode}; ${last}`);
  }
}

/** Describes a step for the log. */
export function describeStep({ line, ...step }: PlannedStep): string {
  const where = line === undefined ? '' : `line ${line}: `;
  return `${where}${nameStep(step)}`;
}

function nameStep(step: Omit<PlannedStep, 'line'>): string {
  const [name, value] = Object.entries(step).find(([, given]) => given !== undefined) ?? ['', ''];
  if (name === 'arg') return `ARG ${step.arg?.name ?? ''}`;
  if (step.copy !== undefined) return shorten(`COPY ${step.copy.from_path} ${step.copy.to}`);
  // Values of variables may be secrets that should not be in a log; names suffice.
  if (name === 'env') return `ENV ${Object.keys(value as Record<string, string>).join(' ')}`;
  return shorten(`${name.toUpperCase()} ${typeof value === 'string' ? value : JSON.stringify(value)}`);
}

function shorten(text: string): string {
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN).toWellFormed()}…` : text;
}

const SCRIPT = '/dev/shm/coppice-step-$$';

/** Returns the command of a step for the shell. The kernel runs a script by its first line, from memory: no image has the file. */
export function writeCommand(run: string | string[], isScript: boolean): string {
  if (typeof run !== 'string') return `exec ${run.map(quote).join(' ')}`;
  if (!isScript) return run;
  const lines = new Set(run.split('\n'));
  let end = 'END';
  while (lines.has(end)) end += '_';
  return `cat >${SCRIPT} <<'${end}' && chmod 755 ${SCRIPT} && exec ${SCRIPT}\n${run}\n${end}\n`;
}

/** Returns an owner of files. As in Docker, a number alone is that of the group, too, whatever the image says of the user. */
function ownerOf(user: string): string {
  return /^\d+$/u.test(user) ? `${user}:${user}` : user;
}

/** Quotes a word for the shell. */
function quote(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}
