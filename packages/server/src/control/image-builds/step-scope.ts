/** The scope that steps of a build leave to later steps and to the image: environment, directory, user, arguments. */
import { posix } from 'node:path';
import { AppError } from '@coppice/contract';
import type { ImageConfig } from '../../lib/protocol/runner-protocol.ts';
import { MAX_PATH_BYTES } from '../../lib/tar/layer-path.ts';
import { expandWord, WordError } from './dockerfile-words.ts';
import { findFault, namesDirectory, SEVERAL_SOURCES, type PlannedStep } from './planned-step.ts';

/** Of all variables and arguments together, names and values. */
const MAX_SCOPE_BYTES = 256 << 10;
const MAX_SCOPE_VARIABLES = 1024;

interface Size {
  bytes: number;
  variables: number;
}

export class StepScope {
  #config: ImageConfig;
  /** The escape character, if the words of the steps have quotes and variables: those of a Dockerfile. */
  readonly #escape: string | undefined;
  /** The image that the steps begin with may have more than steps may set; then they can add nothing. */
  readonly #max: Size;
  /** Variables that steps have set; the guest has those of the image. */
  #env: Readonly<Record<string, string>> = {};
  /** Arguments of a Dockerfile: variables of its steps, but not of the image. */
  #args: Readonly<Record<string, string>> = {};

  /** Variables of RUN that no ARG declares. Other instructions do not see them. */
  readonly #proxies: Readonly<Record<string, string>>;

  constructor(
    config: ImageConfig,
    escape: string | undefined,
    proxies: Readonly<Record<string, string>> = {},
  ) {
    this.#config = config;
    this.#proxies = proxies;
    this.#escape = escape;
    const own = sizeOf(config.env);
    this.#max = {
      bytes: Math.max(MAX_SCOPE_BYTES, own.bytes),
      variables: Math.max(MAX_SCOPE_VARIABLES, own.variables),
    };
  }

  /** The config of the image as the steps have left it. */
  get config(): ImageConfig {
    return this.#config;
  }

  /** Variables of a command, besides those of the image that the steps begin with. As in Docker, they win over arguments. */
  get variables(): Record<string, string> {
    const args = Object.entries({ ...this.#proxies, ...this.#args }).filter(
      ([name]) => !Object.hasOwn(this.#config.env, name),
    );
    return { ...Object.fromEntries(args), ...this.#env };
  }

  resolve(path: string): string {
    return posix.resolve('/', this.#config.workdir, path);
  }

  /** Replaces the variables of a step of a Dockerfile. RUN is left to the shell. Throws `build_failed`. */
  expand(step: PlannedStep): PlannedStep {
    if (this.#escape === undefined) return step;
    const expand = (word: string): string => this.#expandWord(word, step);
    const { env, workdir, user, copy, arg } = step;
    const expandAll = <T extends Record<string, string | undefined>>(values: T): T =>
      Object.fromEntries(
        Object.entries(values).map(([name, value]) => [name, value === undefined ? value : expand(value)]),
      ) as T;
    const expanded = {
      ...step,
      ...(env !== undefined && { env: expandAll(env) }),
      ...(workdir !== undefined && { workdir: expand(workdir) }),
      ...(user !== undefined && { user: expand(user) }),
      ...(copy !== undefined && { copy: expandAll(copy) }),
    };
    if (step.needsDirectory === true && !namesDirectory(expanded.copy?.to ?? ''))
      throw failAt(step, SEVERAL_SOURCES);
    const fault = arg === undefined ? findFault(expanded) : undefined;
    if (fault !== undefined) throw failAt(step, fault);
    return expanded;
  }

  /** Takes over what an expanded step sets. Throws `build_failed` if the variables become too many. */
  take(step: PlannedStep): void {
    const { env, workdir, user, arg } = step;
    if (arg !== undefined) this.#setArgument(arg, step);
    if (env !== undefined) {
      this.#env = { ...this.#env, ...env };
      this.#config = { ...this.#config, env: { ...this.#config.env, ...env } };
    }
    if (arg !== undefined || env !== undefined) this.#checkSize(step);
    if (user !== undefined) this.#config = { ...this.#config, user };
    if (workdir !== undefined)
      this.#config = { ...this.#config, workdir: this.#resolveWorkdir(workdir, step) };
  }

  /** A relative directory is below the one before, so many short ones make a long one. */
  #resolveWorkdir(workdir: string, step: PlannedStep): string {
    const path = this.resolve(workdir);
    if (Buffer.byteLength(path) <= MAX_PATH_BYTES) return path;
    throw failAt(step, `workdir: the whole path has more than ${MAX_PATH_BYTES} bytes; give a shorter one`);
  }

  #setArgument({ name, value, raw }: NonNullable<PlannedStep['arg']>, step: PlannedStep): void {
    const set = value ?? (raw === undefined ? undefined : this.#expandWord(raw, step));
    if (set !== undefined) this.#args = { ...this.#args, [name]: set };
  }

  #checkSize(step: PlannedStep): void {
    const [env, args] = [sizeOf(this.#config.env), sizeOf(this.#args)];
    if (env.variables + args.variables > this.#max.variables)
      throw failAt(
        step,
        `env: the image, the steps and the arguments have more than ${this.#max.variables} variables; set fewer`,
      );
    if (env.bytes + args.bytes > this.#max.bytes)
      throw failAt(
        step,
        `env: the variables of the image, the steps and the arguments have more than ${this.#max.bytes} bytes; shorten them`,
      );
  }

  #expandWord(word: string, step: PlannedStep): string {
    const lookup = (name: string): string | undefined =>
      ownOf(this.#config.env, name) ?? ownOf(this.#args, name);
    try {
      return expandWord(word, { escape: this.#escape ?? '\\', lookup });
    } catch (error) {
      throw error instanceof WordError ? failAt(step, error.message) : error;
    }
  }
}

/** A name such as `constructor` is that of no variable. */
function ownOf(values: Readonly<Record<string, string>>, name: string): string | undefined {
  return Object.hasOwn(values, name) ? values[name] : undefined;
}

function sizeOf(values: Readonly<Record<string, string>>): Size {
  const entries = Object.entries(values);
  const bytes = entries.reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value),
    0,
  );
  return { bytes, variables: entries.length };
}

function failAt({ line }: PlannedStep, reason: string): AppError {
  const where = line === undefined ? '' : `dockerfile: line ${line}: `;
  return new AppError('build_failed', `${where}${reason}`);
}
