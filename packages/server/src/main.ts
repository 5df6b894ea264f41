/**
 * The daemon. Without an argument it is the supervisor of two processes, `control` and `runner`, which are
 * this same program with that argument. Killing any of the three loses nothing: sandboxes run on, and whoever
 * starts again takes them over.
 */
import { ConfigError, loadConfig, type Config } from './config.ts';
import { ensurePrivateDirectory, PathError } from './default-paths.ts';
import { armFaults } from './lib/fault-directory.ts';
import { createLog } from './lib/log.ts';
import { TlsError } from './lib/tls/tls-pair.ts';
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
  const uid = process.getuid?.() ?? 0;
  if (uid !== 0) ensureOwnDirectories(config, uid);
  armFaults(config.faultDir);
  await ROLES[role](config, createLog(role, config.logLevel));
}

/** Root's are made by the parts that use them: accounts of their own have to pass through. */
function ensureOwnDirectories(config: Config, uid: number): void {
  try {
    ensurePrivateDirectory('COPPICE_DATA_DIR', config.dataDir, uid);
    ensurePrivateDirectory('COPPICE_RUN_DIR', config.runDir, uid);
  } catch (error) {
    throw error instanceof PathError ? new ConfigError(error.message) : error;
  }
}

try {
  await main();
} catch (error) {
  const told = explainStart(error);
  const isConfig = told instanceof ConfigError || told instanceof TlsError;
  const isExplained = isConfig || told instanceof StartError;
  process.stderr.write(
    `coppice: ${isExplained ? told.message : String(told instanceof Error ? told.stack : told)}\n`,
  );
  process.exitCode = isConfig ? CONFIG_EXIT_CODE : 1;
  process.disconnect?.();
}
