import type { Command } from 'commander';
import type { CreateOptions, RestoreOptions } from '../../../sdk/src/index.ts';
import { addEnvironmentOptions, readEnvironment, type EnvironmentOptions } from './environment-options.ts';
import { collect, parseMiB, parsePair, parseSeconds, whole } from './parse-values.ts';

/** Options of a sandbox that has its size already. */
export interface LifeOptions {
  name?: string;
  timeout?: number;
  maxLifetime?: number;
  autoHibernate?: boolean;
  label?: Record<string, string>;
  networkProfile?: string;
  allow?: string[];
  deny?: string[];
  disk?: string;
}

/** Options of a new sandbox. */
export interface SandboxOptions extends LifeOptions {
  cpus?: number;
  mem?: number;
  diskSize?: number;
}

/** Options that all processes in a sandbox start with. */
export interface ProcessDefaults extends EnvironmentOptions {
  cwd?: string;
}

const MAX_CPUS = 32;

/** Adds the options of a new sandbox, without those of {@link addProcessDefaults}. */
export function addSandboxOptions(command: Command): Command {
  command
    .option('--cpus <count>', 'virtual CPUs (default: 1)', whole(1, MAX_CPUS))
    .option('--mem <size>', 'memory, such as 512m or 2g (default: 1g)', parseMiB)
    .option('--disk-size <size>', 'size of the scratch disk (default: 4g)', parseMiB)
    .option('--disk <name>', 'persistent disk that is mounted at /workspace');
  return addLifeOptions(command, '5m');
}

/** Adds the options of a sandbox that has its size already. */
export function addLifeOptions(command: Command, timeout: string): Command {
  return command
    .option('--name <text>', 'name, by which commands find it')
    .option(
      '--timeout <time>',
      `idle time after which it is destroyed; 0: never (default: ${timeout})`,
      parseSeconds,
    )
    .option('--max-lifetime <time>', 'time after which it is destroyed even if it is in use', parseSeconds)
    .option('--auto-hibernate', 'hibernates the idle sandbox instead of destroying it')
    .option('--label <key=value>', 'label; may be repeated', parsePair)
    .option('--network-profile <name>', 'network rules of the service, by name')
    .option('--allow <destination>', 'host, address or range that it may reach; may be repeated', collect)
    .option('--deny <destination>', 'host, address or range that it may not reach; may be repeated', collect);
}

/** Adds the options that all processes in a sandbox start with. */
export function addProcessDefaults(command: Command): Command {
  return addEnvironmentOptions(command).option(
    '-w, --cwd <directory>',
    "absolute path where commands start (default: the image's, else /workspace)",
  );
}

/** Returns the settings of a new sandbox for the client. */
export function toCreateOptions(
  image: string,
  options: SandboxOptions & { defaults?: ProcessDefaults },
): CreateOptions {
  return {
    image,
    vcpus: options.cpus,
    memMiB: options.mem,
    diskMiB: options.diskSize,
    ...toLifeOptions(options),
    ...toProcessDefaults(options.defaults ?? {}),
  };
}

/** Returns the settings for the client of a sandbox that has its size already. */
export function toLifeOptions(
  options: LifeOptions,
): Omit<RestoreOptions & CreateOptions, 'maxLifetime' | 'cwd'> & { maxLifetime: number | undefined } {
  const { allow, deny } = options;
  return {
    name: options.name,
    disk: options.disk,
    timeout: options.timeout,
    maxLifetime: options.maxLifetime,
    autoHibernate: options.autoHibernate,
    labels: options.label,
    networkProfile: options.networkProfile,
    ...(allow === undefined && deny === undefined ? {} : { network: { allow, deny } }),
  };
}

/** Returns the same for the client. */
export function toProcessDefaults(
  options: ProcessDefaults,
): Pick<CreateOptions, 'env'> & { cwd: string | undefined } {
  return { env: readEnvironment(options), cwd: options.cwd };
}
