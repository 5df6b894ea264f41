import type { Command } from 'commander';
import type { CreateOptions } from '../../../sdk/src/index.ts';
import { collect, parseMiB, parsePair, parseSeconds, whole } from './parse-values.ts';

export interface SandboxOptions {
  cpus?: number;
  mem?: number;
  diskSize?: number;
  timeout?: number;
  maxLifetime?: number;
  autoHibernate?: boolean;
  label?: Record<string, string>;
  networkProfile?: string;
  allow?: string[];
  deny?: string[];
  disk?: string;
}

const MAX_CPUS = 32;

/** Adds the options of a new sandbox. */
export function addSandboxOptions(command: Command): Command {
  return command
    .option('--cpus <count>', 'virtual CPUs (default: 1)', whole(1, MAX_CPUS))
    .option('--mem <size>', 'memory, such as 512m or 2g (default: 1g)', parseMiB)
    .option('--disk-size <size>', 'size of the scratch disk (default: 4g)', parseMiB)
    .option('--disk <name>', 'persistent disk that is mounted at /workspace')
    .option('--timeout <time>', 'idle time after which it is destroyed; 0: never (default: 5m)', parseSeconds)
    .option('--max-lifetime <time>', 'time after which it is destroyed even if it is in use', parseSeconds)
    .option('--auto-hibernate', 'hibernates the idle sandbox instead of destroying it')
    .option('--label <key=value>', 'label; may be repeated', parsePair)
    .option('--network-profile <name>', 'network rules of the service, by name')
    .option('--allow <destination>', 'host, address or range that it may reach; may be repeated', collect)
    .option('--deny <destination>', 'host, address or range that it may not reach; may be repeated', collect);
}

/** Returns the settings of a new sandbox for the client. */
export function toCreateOptions(image: string, options: SandboxOptions): CreateOptions {
  const { allow, deny } = options;
  return {
    image,
    vcpus: options.cpus,
    memMiB: options.mem,
    diskMiB: options.diskSize,
    disk: options.disk,
    timeout: options.timeout,
    maxLifetime: options.maxLifetime,
    autoHibernate: options.autoHibernate,
    labels: options.label,
    networkProfile: options.networkProfile,
    ...(allow === undefined && deny === undefined ? {} : { network: { allow, deny } }),
  };
}
