/**
 * The probes of `coppice admin doctor`, which use the service's own parts. Each runs in its own process:
 * `diagnose.ts config|service|boot|network|objects` prints one line of JSON. It removes everything that it created before it
 * ends, and it ends when its standard input does, that is, also when its caller has died.
 */
import { ConfigError, loadConfig, useStoreVariables, type Config } from '../config/config.ts';
import { listMissingLimits } from '../lib/missing-limits.ts';
import { probeCgroups } from '../runner/confinement/cgroup-probe.ts';
import { probeBoot } from './boot-probe.ts';
import { probeNetwork } from './network-probe.ts';
import { probeObjectServer } from './object-server-probe.ts';
import { askService } from './service-state.ts';

export interface Failure {
  error: string;
}

const PROBES: Record<string, (config: Config, signal: AbortSignal) => Promise<object>> = {
  config: async (config) => describeConfig(config),
  service: describeService,
  boot: (config, signal) => probeBoot(config, signal),
  network: (config, signal) => probeNetwork(config, signal),
  objects: (config, signal) => probeObjects(config, signal),
};

/** Describes the service, with the limits that its VMs have or would have. */
async function describeService(config: Config): Promise<object> {
  const found = await askService(config);
  const cgroups = found.state === 'running' ? found.status.cgroups : probeCgroups();
  return { ...found, cgroups, missing_limits: listMissingLimits(cgroups) };
}

function describeConfig(config: Config): object {
  const { dataDir, runDir, assetsDir, runner } = config;
  return { data_dir: dataDir, run_dir: runDir, assets_dir: assetsDir, network: runner.network };
}

/** Checks the conditions of an object store on a server. The directory of the default one belongs to the service. */
async function probeObjects(config: Config, signal: AbortSignal): Promise<object> {
  const { objectStore = { kind: 'directory' }, dataDir } = config.control;
  if (objectStore.kind === 'directory') return { store: `a directory in ${dataDir}` };
  useStoreVariables(config);
  return probeObjectServer(objectStore, signal);
}

/** Returns a signal that aborts when the caller has died or no longer waits. */
function abandoned(): AbortSignal {
  const controller = new AbortController();
  const abort = (): void => controller.abort(new Error('the probe was broken off'));
  process.stdin.once('end', abort).once('error', abort).resume();
  process.once('SIGTERM', abort).once('SIGINT', abort);
  return controller.signal;
}

async function run(name: string): Promise<object> {
  const probe = PROBES[name];
  if (probe === undefined) throw new ConfigError(`there is no probe "${name}"`);
  return probe(loadConfig(), abandoned());
}

try {
  process.stdout.write(`${JSON.stringify(await run(process.argv[2] ?? ''))}\n`);
} catch (error) {
  const failure: Failure = { error: error instanceof Error ? error.message : String(error) };
  process.stdout.write(`${JSON.stringify(failure)}\n`);
  process.exitCode = 1;
}
process.stdin.destroy();
