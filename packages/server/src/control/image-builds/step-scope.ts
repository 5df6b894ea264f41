/** The scope that steps of a build leave to later steps and to the image: environment, directory, user, arguments. */
import { posix } from 'node:path';
import type { ImageConfig } from '../../lib/protocol/runner-protocol.ts';
import { expandWord } from './dockerfile-words.ts';
import type { PlannedStep } from './planned-step.ts';

export class StepScope {
  #config: ImageConfig;
  /** The escape character, if the words of the steps have quotes and variables: those of a Dockerfile. */
  readonly #escape: string | undefined;
  /** Variables that steps have set; the guest has those of the image. */
  #env: Record<string, string> = {};
  /** Arguments of a Dockerfile: variables of its steps, but not of the image. */
  #args: Record<string, string> = {};

  constructor(config: ImageConfig, escape: string | undefined) {
    this.#config = config;
    this.#escape = escape;
  }

  /** The config of the image as the steps have left it. */
  get config(): ImageConfig {
    return this.#config;
  }

  /** Variables of a command, besides those of the image that the steps begin with. */
  get variables(): Record<string, string> {
    return { ...this.#args, ...this.#env };
  }

  resolve(path: string): string {
    return posix.resolve('/', this.#config.workdir, path);
  }

  /** Replaces the variables of a step of a Dockerfile. RUN is left to the shell. */
  expand(step: PlannedStep): PlannedStep {
    if (this.#escape === undefined) return step;
    const expand = (word: string): string => this.#expandWord(word);
    const { env, workdir, user, copy } = step;
    const expandAll = <T extends Record<string, string | undefined>>(values: T): T =>
      Object.fromEntries(
        Object.entries(values).map(([name, value]) => [name, value === undefined ? value : expand(value)]),
      ) as T;
    return {
      ...step,
      ...(env !== undefined && { env: expandAll(env) }),
      ...(workdir !== undefined && { workdir: expand(workdir) }),
      ...(user !== undefined && { user: expand(user) }),
      ...(copy !== undefined && { copy: expandAll(copy) }),
    };
  }

  /** Takes over what an expanded step sets. */
  take({ env, workdir, user, arg }: PlannedStep): void {
    if (arg !== undefined) this.#setArgument(arg);
    if (env !== undefined) {
      this.#env = { ...this.#env, ...env };
      this.#config = { ...this.#config, env: { ...this.#config.env, ...env } };
    }
    if (user !== undefined) this.#config = { ...this.#config, user };
    if (workdir !== undefined) this.#config = { ...this.#config, workdir: this.resolve(workdir) };
  }

  #setArgument({ name, value, raw }: NonNullable<PlannedStep['arg']>): void {
    const set = value ?? (raw === undefined ? undefined : this.#expandWord(raw));
    if (set !== undefined) this.#args = { ...this.#args, [name]: set };
  }

  #expandWord(word: string): string {
    const lookup = (name: string): string | undefined => this.#config.env[name] ?? this.#args[name];
    return expandWord(word, { escape: this.#escape ?? '\\', lookup });
  }
}
