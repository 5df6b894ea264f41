/**
 * The daemon. Without an argument it is the supervisor of two processes, `control` and `runner`, which are
 * this same program with that argument. Killing any of the three loses nothing: sandboxes run on, and whoever
 * starts again takes them over.
 */
import { ConfigError, loadConfig } from './config.ts';
import { armFaults } from './lib/fault-directory.ts';
import { createLog } from './lib/log.ts';
import { runControlRole, runRunnerRole } from './roles.ts';
import { explainStart, StartError } from './start-error.ts';
import { supervise } from './supervisor.ts';

/** EX_CONFIG: starting again would not help. */
const CONFIG_EXIT_CODE = 78;

const ROLES = { control: runControlRole, runner: runRunnerRole, all: supervise } as const;

function parseRole(argument: string | undefined): keyof typeof ROLES {
  const role = argument ?? 'all';
  if (role === 'control' || role === 'runner' || role === 'all') return role;
  throw new ConfigError(`unknown role "${role}": it is control, runner or nothing for both`);
}

async function main(): Promise<void> {
  const role = parseRole(process.argv[2]);
  const config = loadConfig();
  armFaults(config.faultDir);
  await ROLES[role](config, createLog(role, config.logLevel));
}

try {
  await main();
} catch (error) {
  const told = explainStart(error);
  const isExplained = told instanceof ConfigError || told instanceof StartError;
  process.stderr.write(
    `coppice: ${isExplained ? told.message : String(told instanceof Error ? told.stack : told)}\n`,
  );
  process.exitCode = told instanceof ConfigError ? CONFIG_EXIT_CODE : 1;
  process.disconnect?.();
}
