/**
 * The daemon. Without an argument it is the supervisor of two processes, `control` and `runner`, which run this same
 * program with that argument; the runner starts a third one, `egress`. Sandboxes survive the death of any process; the
 * next start adopts them.
 */
import type { Logger } from 'pino';
import {
  ConfigError,
  dropTracingVariables,
  loadConfig,
  readProcessSettings,
  type Config,
} from './config/config.ts';
import { PathError } from './config/default-paths.mjs';
import { ensurePrivateDirectory } from './config/private-directory.ts';
import { stretchDeadlines } from './lib/waiting/deadline.ts';
import { armFaults } from './lib/fault-directory.ts';
import { createLog } from './lib/log.ts';
import { openTracing } from './lib/tracing/open-tracing.ts';
import { TlsError } from './lib/tls/tls-pair.ts';

/** EX_CONFIG: a restart would not help. */
const CONFIG_EXIT_CODE = 78;
/** Time for a role that has stopped to end by itself. */
const EXIT_GRACE_MS = 500;

type RunRole = (config: Config, log: Logger) => Promise<void>;

/** Each role loads only the code that it runs; this matters most for the role that serves guests. */
const ROLES: ReadonlyMap<string, () => Promise<RunRole>> = new Map([
  ['control', async () => (await import('./control-role.ts')).runControlRole],
  ['runner', async () => (await import('./runner-role.ts')).runRunnerRole],
  ['all', async () => (await import('./supervisor.ts')).supervise],
]);

let explain = (error: unknown): unknown => error;

async function main(): Promise<void> {
  const role = process.argv[2] ?? 'all';
  if (role === 'egress') return runEgress();
  const load = ROLES.get(role);
  if (load === undefined)
    throw new ConfigError(`unknown role "${role}": expected control, runner, or no argument for both`);
  // Imported now, because an unprivileged control may no longer be able to read the program's files.
  explain = (await import('./start-error.ts')).explainStart;
  const config = loadConfig();
  const uid = process.getuid?.() ?? 0;
  if (uid !== 0) ensureOwnDirectories(config, uid);
  armFaults(config.faultDir);
  stretchDeadlines(config.deadlineFactor);
  const run = await load();
  const log = createLog(role, config.logLevel, { isTraced: config.tracing !== undefined });
  if (role === 'all') return run(config, log);
  dropTracingVariables();
  await runTraced(config, { role, log }, () => run(config, log));
}

/** Runs a role, and exports its traces if a collector is configured. */
async function runTraced(
  config: Config,
  { role, log }: { role: string; log: Logger },
  run: () => Promise<void>,
): Promise<void> {
  if (config.tracing === undefined) return run();
  const { version } = config.control;
  const tracing = await openTracing(config.tracing, { name: role, version, log });
  try {
    await run();
  } finally {
    // A library that still waits to repeat an export would hold up the restart of the service.
    if (!(await tracing.close())) setTimeout(() => process.exit(), EXIT_GRACE_MS).unref();
  }
}

/** Runs the egress role. It has no directories, and receives its configuration from the runner. */
async function runEgress(): Promise<void> {
  const { logLevel, deadlineFactor } = readProcessSettings();
  stretchDeadlines(deadlineFactor);
  const { runEgressRole } = await import('./egress/egress.ts');
  await runEgressRole(Number(process.argv[3]), createLog('egress', logLevel));
}

/**
 * Creates the private directories of an ordinary user. The directories of root are created by the parts that use them,
 * because other accounts must be able to reach their own directories below.
 */
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
  const told = explain(error);
  const isConfig = told instanceof ConfigError || told instanceof TlsError;
  const isExplained = isConfig || (told instanceof Error && told.name === 'StartError');
  process.stderr.write(
    `coppice: ${isExplained ? told.message : String(told instanceof Error ? told.stack : told)}\n`,
  );
  process.exitCode = isConfig ? CONFIG_EXIT_CODE : 1;
  process.disconnect?.();
}
