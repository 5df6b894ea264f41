/** The configuration of each part of the service, from the settings and the manifest of the installed parts. */
import { join } from 'node:path';
import { parseApiKey } from '@coppice/contract';
import server from '../../package.json' with { type: 'json' };
import type { ControlConfig } from '../control/control-config.ts';
import type { TlsPaths } from '../lib/tls/tls-pair.ts';
import type { TracingConfig } from '../lib/tracing/tracing-config.ts';
import type { RunnerConfig } from '../runner/runner-config.ts';
import { readAccountLimits } from './account-settings.ts';
import { ConfigError } from './config-error.ts';
import {
  choosePaths,
  INSTALLATIONS_DIR,
  isReadable,
  networkSlug,
  PathError,
  type Paths,
} from './default-paths.mjs';
import { readEgress } from './egress-settings.ts';
import { readExposure } from './exposure-settings.ts';
import { readManifest, type Manifest } from './manifest.ts';
import { formatObjectStore } from './object-store-setting.ts';
import { readSettings, type Settings } from './settings.ts';
import { readTracing } from './tracing-settings.ts';

export { ConfigError } from './config-error.ts';

export interface Config {
  dataDir: string;
  runDir: string;
  assetsDir: string;
  control: ControlConfig;
  runner: RunnerConfig;
  logLevel: string;
  /** Factor of every deadline of the service itself. */
  deadlineFactor: number;
  /** Directory with which tests hold the roles at named steps; absent in production. */
  faultDir?: string;
  /** Unprivileged account of control and its PostgreSQL. */
  user: string;
  /** Files of certificate and key; undefined for plain HTTP. */
  tls?: TlsPaths;
  /** Variables for the client of the object store, with its credentials: see `useStoreVariables`. */
  storeVariables: Readonly<Record<string, string>>;
  /** Where traces go; absent: there are none. */
  tracing?: TracingConfig;
}

export function loadConfig(environment: NodeJS.ProcessEnv = process.env): Config {
  const settings = readSettings(environment);
  const { dataDir, runDir, assetsDir } = readPaths(settings, environment);
  const manifest = readManifest(join(assetsDir, 'manifest.json'));
  assertShort(runDir);
  assertBootstrapKey(settings);
  const runnerSocket = join(runDir, 'runner.sock');
  const { tls, ...exposure } = readExposure(settings, settings.COPPICE_LISTEN);
  const tracing = readTracing(settings);
  return {
    dataDir,
    runDir,
    assetsDir,
    logLevel: settings.COPPICE_LOG_LEVEL,
    user: settings.COPPICE_USER,
    ...(tls === undefined ? {} : { tls }),
    deadlineFactor: settings.COPPICE_DEADLINE_FACTOR,
    storeVariables: settings.storeVariables,
    ...(tracing === undefined ? {} : { tracing }),
    ...(settings.COPPICE_FAULT_DIR === undefined ? {} : { faultDir: settings.COPPICE_FAULT_DIR }),
    control: {
      ...exposure,
      version: server.version,
      listen: settings.COPPICE_LISTEN,
      ...readInternal(settings),
      region: settings.COPPICE_REGION,
      regionAddresses: settings.COPPICE_REGIONS,
      dataDir: join(dataDir, 'control'),
      diskReserveMiB: settings.COPPICE_DISK_RESERVE_MIB,
      runDir: join(runDir, 'control'),
      runnerSocket,
      postgresBin: manifest.postgres_bin.path,
      ...(manifest.docs === undefined ? {} : { documentationDir: manifest.docs.path }),
      ...(manifest.dashboard === undefined ? {} : { dashboardDir: manifest.dashboard.path }),
      objectStore: settings.COPPICE_OBJECT_STORE,
      ...readAccountLimits(settings),
      egress: readEgress(settings, assetsDir),
      webhookOpenRanges: settings.COPPICE_WEBHOOK_OPEN_RANGES,
      ...(settings.DATABASE_URL === undefined ? {} : { databaseUrl: settings.DATABASE_URL }),
      ...(settings.COPPICE_METRICS_TOKEN === undefined
        ? {}
        : { metricsToken: settings.COPPICE_METRICS_TOKEN }),
      continuesTraces: settings.COPPICE_TRACE_CALLERS === 'continue',
      signUp: settings.COPPICE_SIGN_UP,
      ...(settings.COPPICE_BOOTSTRAP_INVITATION === undefined
        ? {}
        : { bootstrapInvitation: settings.COPPICE_BOOTSTRAP_INVITATION }),
      ...(settings.COPPICE_BOOTSTRAP_KEY === undefined
        ? {}
        : { bootstrapKey: settings.COPPICE_BOOTSTRAP_KEY }),
    },
    runner: runnerConfig(settings, manifest, { dataDir, runDir, runnerSocket }),
  };
}

/**
 * Sets the variables that the client of the object store reads from the environment. Only processes that use the store
 * call this, so that no other one has the credentials.
 */
export function useStoreVariables({ storeVariables }: Config): void {
  Object.assign(process.env, storeVariables);
}

/**
 * Removes the variables of the object store from the environment, so that no other process that this one starts has the
 * credentials. Returns them for the one that needs them.
 */
export function takeStoreVariables({ storeVariables }: Config): Record<string, string> {
  const own = Object.entries(process.env).filter(([name]) => name.startsWith('AWS_'));
  for (const [name] of own) delete process.env[name];
  return { ...storeVariables, ...(Object.fromEntries(own) as Record<string, string>) };
}

/**
 * Removes the variables of OpenTelemetry from the environment. They are read by now, may hold the credentials of a
 * collector, and are for no other process that this one starts.
 */
export function dropTracingVariables(): void {
  for (const name of Object.keys(process.env)) if (name.startsWith('OTEL_')) delete process.env[name];
}

/** Reads the settings of a process with fewer rights: a settings file that it may not read counts as absent. */
export function readProcessSettings(environment: NodeJS.ProcessEnv = process.env): {
  logLevel: string;
  deadlineFactor: number;
} {
  const { COPPICE_CONFIG: path, ...rest } = environment;
  const mayRead = path === undefined || isReadable(path);
  const settings = readSettings(mayRead ? environment : rest);
  return { logLevel: settings.COPPICE_LOG_LEVEL, deadlineFactor: settings.COPPICE_DEADLINE_FACTOR };
}

function runnerConfig(
  settings: Settings,
  manifest: Manifest,
  paths: { dataDir: string; runDir: string; runnerSocket: string },
): RunnerConfig {
  const { dataDir, runDir, runnerSocket } = paths;
  return {
    dataDir: join(dataDir, 'runner'),
    runDir,
    socketPath: runnerSocket,
    ...(settings.COPPICE_RUNNER_LISTEN === undefined ? {} : { listen: settings.COPPICE_RUNNER_LISTEN }),
    slug: networkSlug(dataDir),
    installationDir: dataDir,
    installationsDir: INSTALLATIONS_DIR,
    ranges: {
      ...(settings.COPPICE_GUEST_CIDR === undefined ? {} : { guestCidr: settings.COPPICE_GUEST_CIDR }),
      ...(settings.COPPICE_UID_BASE === undefined ? {} : { uidBase: settings.COPPICE_UID_BASE }),
    },
    accelerator: settings.COPPICE_ACCELERATOR,
    cpu: settings.COPPICE_CPU,
    network: settings.COPPICE_NETWORK,
    openPrivateRanges: settings.COPPICE_OPEN_PRIVATE_RANGES,
    resolvers: settings.COPPICE_RESOLVERS,
    warmPoolLimit: settings.COPPICE_WARM_POOL,
    memOvercommit: settings.COPPICE_MEM_OVERCOMMIT,
    cpuOvercommit: settings.COPPICE_CPU_OVERCOMMIT,
    diskReserveMiB: settings.COPPICE_DISK_RESERVE_MIB,
    imageCacheMiB: settings.COPPICE_IMAGE_CACHE_MIB,
    objectStore: formatObjectStore(settings.COPPICE_OBJECT_STORE),
    diskBacklogMiB: settings.COPPICE_DISK_BACKLOG_MIB,
    diskCacheMiB: settings.COPPICE_DISK_CACHE_MIB,
    registryMirrors: settings.COPPICE_REGISTRY_MIRRORS,
    insecureRegistries: settings.COPPICE_INSECURE_REGISTRIES,
    localImagesDir: join(dataDir, 'runner', 'local-images'),
    builtinImages: [
      { reference: manifest.base_image.reference, layoutPath: manifest.base_image.layout_path },
    ],
    tools: {
      jail: manifest.jail.path,
      capture: manifest.capture.path,
      hostctl: manifest.hostctl.path,
      blocks: manifest.blocks.path,
      qemu: manifest.qemu.path,
      kernel: manifest.kernel.path,
      initramfs: manifest.initramfs.path,
      tar2sqfs: manifest.tar2sqfs.path,
      nft: manifest.nft.path,
      ip: manifest.ip.path,
      mke2fs: manifest.mke2fs.path,
    },
  };
}

function readPaths(settings: Settings, environment: NodeJS.ProcessEnv): Paths {
  const given = {
    dataDir: settings.COPPICE_DATA_DIR,
    runDir: settings.COPPICE_RUN_DIR,
    assetsDir: settings.COPPICE_ASSETS_DIR,
  };
  try {
    return choosePaths(given, process.getuid?.() ?? 0, environment);
  } catch (error) {
    throw error instanceof PathError ? new ConfigError(error.message) : error;
  }
}

function assertBootstrapKey({ COPPICE_BOOTSTRAP_KEY: key, COPPICE_REGION: region }: Settings): void {
  if (key === undefined) return;
  const parts = parseApiKey(key);
  if (parts === undefined) {
    throw new ConfigError(
      'COPPICE_BOOTSTRAP_KEY: is malformed; a key looks like cop_live_<region>_<40 letters and digits>',
    );
  }
  if (parts.region === region) return;
  throw new ConfigError(
    `COPPICE_BOOTSTRAP_KEY: is of region "${parts.region}", but COPPICE_REGION is "${region}"`,
  );
}

/** A Unix socket path has at most 107 bytes, and the path of a VM's socket is `<run dir>/v/<23 characters>/data`. */
const MAX_RUN_DIR_BYTES = 70;

/** Throws if other controls could not know where this one listens for them. */
function readInternal(settings: Settings): Pick<Config['control'], 'internalListen' | 'internalAddress'> {
  const { COPPICE_INTERNAL_LISTEN: internalListen, COPPICE_INTERNAL_ADDRESS: internalAddress } = settings;
  if (internalListen === undefined) return {};
  if (internalAddress !== undefined) return { internalListen, internalAddress };
  if (internalListen.host !== '0.0.0.0' && internalListen.host !== '::') return { internalListen };
  throw new ConfigError(
    'COPPICE_INTERNAL_ADDRESS is not set: with COPPICE_INTERNAL_LISTEN on all addresses, name the host:port at which other ' +
      'controls reach this one, such as 10.0.0.1:9444',
  );
}

function assertShort(runDir: string): void {
  if (Buffer.byteLength(runDir) <= MAX_RUN_DIR_BYTES) return;
  throw new ConfigError(
    `COPPICE_RUN_DIR is longer than ${MAX_RUN_DIR_BYTES} bytes: socket paths in it would not fit`,
  );
}
