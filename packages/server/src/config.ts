/**
 * The only reader of the environment. Settings come from `COPPICE_*` variables, or from the file that
 * `COPPICE_CONFIG` names (default /etc/coppice/coppice.env, `NAME=value` lines; the environment wins).
 * docs/reference/configuration.md lists them all; a test keeps it so.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { join, resolve } from 'node:path';
import { parseEnv } from 'node:util';
import { parseApiKey } from '@coppice/contract';
import { z } from 'zod';
import { ConfigError } from './config-error.ts';
import type { ControlConfig } from './control/control-config.ts';
import { choosePaths, PathError, type Paths } from './default-paths.ts';
import { EXPOSURE_SETTINGS, readExposure } from './exposure-settings.ts';
import type { TlsPaths } from './lib/tls/tls-pair.ts';
import type { RunnerConfig } from './runner/runner-config.ts';

const GIBIBYTE = 2 ** 30;

export { ConfigError } from './config-error.ts';

export interface Config {
  dataDir: string;
  runDir: string;
  assetsDir: string;
  control: ControlConfig;
  runner: RunnerConfig;
  logLevel: string;
  /** Where tests hold the roles at named steps; absent in service. */
  faultDir?: string;
  /** Unprivileged account of control and its PostgreSQL. */
  user: string;
  /** Files of certificate and key; undefined for plain HTTP. */
  tls?: TlsPaths;
}

const flagList = z.string().transform((text) =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== ''),
);

const Mirrors = flagList.transform((items, context) => {
  const mirrors: Record<string, string> = {};
  for (const item of items) {
    const [registry, url] = item.split('=', 2);
    if (registry === undefined || url === undefined || !/^https?:\/\//u.test(url)) {
      context.addIssue({ code: 'custom', message: `"${item}" is not registry=http(s)://host` });
      return z.NEVER;
    }
    mirrors[registry] = url;
  }
  return mirrors;
});

const Listen = z.string().transform((text, context) => {
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/u.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || (isIP(host) === 0 && host !== 'localhost') || port > 65_535) {
    context.addIssue({ code: 'custom', message: `"${text}" is not address:port, such as 127.0.0.1:8080` });
    return z.NEVER;
  }
  return { host, port };
});

const VERSION = z
  .object({ version: z.string() })
  .parse(JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))).version;

/** Every variable the service reads, with its default. */
export const Settings = z.object({
  COPPICE_DATA_DIR: z.string().optional(),
  COPPICE_RUN_DIR: z.string().optional(),
  COPPICE_ASSETS_DIR: z.string().optional(),
  COPPICE_LISTEN: Listen.prefault('127.0.0.1:8080'),
  ...EXPOSURE_SETTINGS,
  COPPICE_REGION: z
    .string()
    .regex(/^[a-z]{2,8}$/u, 'lowercase letters, such as us')
    .default('us'),
  COPPICE_BOOTSTRAP_KEY: z.string().optional(),
  COPPICE_USER: z.string().default('coppice'),
  COPPICE_LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal']).default('info'),
  COPPICE_REGISTRY_MIRRORS: Mirrors.prefault(''),
  COPPICE_INSECURE_REGISTRIES: flagList.prefault(''),
  COPPICE_NETWORK: z.enum(['auto', 'on', 'off']).default('auto'),
  COPPICE_GUEST_CIDR: z
    .string()
    .regex(/^\d+\.\d+\.\d+\.\d+\/\d+$/u, 'an IPv4 range, such as 10.202.0.0/16')
    .default('10.202.0.0/16'),
  COPPICE_OPEN_PRIVATE_RANGES: flagList.prefault(''),
  COPPICE_RESOLVERS: flagList.prefault(''),
  COPPICE_WARM_POOL: z.coerce.number().int().min(0).max(64).default(4),
  COPPICE_MEM_OVERCOMMIT: z.coerce.number().min(0.1).max(100).default(2),
  COPPICE_CPU_OVERCOMMIT: z.coerce.number().min(0.1).max(1000).default(16),
  COPPICE_DISK_RESERVE_MIB: z.coerce.number().int().min(64).max(1_000_000_000).default(2048),
  COPPICE_IMAGE_CACHE_MIB: z.coerce.number().int().min(0).max(1_000_000_000).default(20_480),
  COPPICE_SNAPSHOT_QUOTA_GIB: z.coerce.number().min(0).max(1_000_000).default(100),
  COPPICE_UID_BASE: z.coerce.number().int().min(1000).max(2_000_000_000).default(1_600_000),
  COPPICE_FAULT_DIR: z.string().optional(),
  DATABASE_URL: z.string().optional(),
});
export type Settings = z.infer<typeof Settings>;

const Manifest = z.object({
  version: z.literal(1),
  kernel: z.object({ path: z.string() }),
  initramfs: z.object({ path: z.string() }),
  base_image: z.object({ layout_path: z.string(), reference: z.string() }),
  jail: z.object({ path: z.string() }),
  capture: z.object({ path: z.string() }),
  qemu: z.object({ path: z.string() }),
  qemu_img: z.object({ path: z.string() }),
  tar2sqfs: z.object({ path: z.string() }),
  // Without them guests have no network.
  nft: z.object({ path: z.string() }).default({ path: 'nft' }),
  ip: z.object({ path: z.string() }).default({ path: 'ip' }),
  mke2fs: z.object({ path: z.string() }),
  postgres_bin: z.object({ path: z.string() }),
});
type Manifest = z.infer<typeof Manifest>;

export function loadConfig(environment: NodeJS.ProcessEnv = process.env): Config {
  const settings = readSettings(environment);
  const paths = readPaths(settings, environment);
  const manifest = readManifest(join(paths.assetsDir, 'manifest.json'));
  const dataDir = resolve(paths.dataDir);
  const runDir = resolve(paths.runDir);
  assertShort(runDir);
  assertBootstrapKey(settings);
  const runnerSocket = join(runDir, 'runner.sock');
  const { tls, ...exposure } = readExposure(settings, settings.COPPICE_LISTEN);
  return {
    dataDir,
    runDir,
    assetsDir: resolve(paths.assetsDir),
    logLevel: settings.COPPICE_LOG_LEVEL,
    user: settings.COPPICE_USER,
    ...(tls === undefined ? {} : { tls }),
    ...(settings.COPPICE_FAULT_DIR === undefined ? {} : { faultDir: settings.COPPICE_FAULT_DIR }),
    control: {
      ...exposure,
      version: VERSION,
      listen: settings.COPPICE_LISTEN,
      region: settings.COPPICE_REGION,
      dataDir: join(dataDir, 'control'),
      runDir: join(runDir, 'control'),
      runnerSocket,
      postgresBin: manifest.postgres_bin.path,
      limits: { snapshotBytesPerOrganization: Math.round(settings.COPPICE_SNAPSHOT_QUOTA_GIB * GIBIBYTE) },
      ...(settings.DATABASE_URL === undefined ? {} : { databaseUrl: settings.DATABASE_URL }),
      ...(settings.COPPICE_BOOTSTRAP_KEY === undefined
        ? {}
        : { bootstrapKey: settings.COPPICE_BOOTSTRAP_KEY }),
    },
    runner: runnerConfig(settings, manifest, { dataDir, runDir, runnerSocket }),
  };
}

/** Tells the TAPs and the nftables table of several installations on one host apart. */
export function networkSlug(dataDir: string): string {
  return createHash('sha256').update(dataDir).digest('hex').slice(0, 4);
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
    slug: networkSlug(dataDir),
    network: settings.COPPICE_NETWORK,
    guestCidr: settings.COPPICE_GUEST_CIDR,
    openPrivateRanges: settings.COPPICE_OPEN_PRIVATE_RANGES,
    resolvers: settings.COPPICE_RESOLVERS,
    warmPoolLimit: settings.COPPICE_WARM_POOL,
    memOvercommit: settings.COPPICE_MEM_OVERCOMMIT,
    cpuOvercommit: settings.COPPICE_CPU_OVERCOMMIT,
    diskReserveMiB: settings.COPPICE_DISK_RESERVE_MIB,
    imageCacheMiB: settings.COPPICE_IMAGE_CACHE_MIB,
    uidBase: settings.COPPICE_UID_BASE,
    registryMirrors: settings.COPPICE_REGISTRY_MIRRORS,
    insecureRegistries: settings.COPPICE_INSECURE_REGISTRIES,
    localImagesDir: join(dataDir, 'runner', 'local-images'),
    builtinImages: [
      { reference: manifest.base_image.reference, layoutPath: manifest.base_image.layout_path },
    ],
    tools: {
      jail: manifest.jail.path,
      capture: manifest.capture.path,
      qemu: manifest.qemu.path,
      qemuImg: manifest.qemu_img.path,
      kernel: manifest.kernel.path,
      initramfs: manifest.initramfs.path,
      tar2sqfs: manifest.tar2sqfs.path,
      nft: manifest.nft.path,
      ip: manifest.ip.path,
      mke2fs: manifest.mke2fs.path,
    },
  };
}

const DEFAULT_FILE = '/etc/coppice/coppice.env';

function readSettings(environment: NodeJS.ProcessEnv): Settings {
  const path = environment['COPPICE_CONFIG'] ?? DEFAULT_FILE;
  if (environment['COPPICE_CONFIG'] !== undefined && !existsSync(path)) {
    throw new ConfigError(`COPPICE_CONFIG names ${path}, which does not exist`);
  }
  const parsed = Settings.safeParse({ ...readSettingsFile(path), ...environment });
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new ConfigError(`${issue?.path.join('.') ?? 'configuration'}: ${issue?.message ?? 'cannot be used'}`);
}

/** The default file is that of the machine's service: an ordinary user's own has nothing to do with it. */
function readSettingsFile(path: string): NodeJS.Dict<string> {
  if (!existsSync(path)) return {};
  try {
    return parseEnv(readFileSync(path, 'utf8'));
  } catch (error) {
    const isForbidden = (error as NodeJS.ErrnoException).code === 'EACCES';
    if (isForbidden && path === DEFAULT_FILE) return {};
    throw new ConfigError(
      `${path} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
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
      'COPPICE_BOOTSTRAP_KEY: is malformed, a key looks like cop_live_<region>_<40 letters and digits>',
    );
  }
  if (parts.region === region) return;
  throw new ConfigError(
    `COPPICE_BOOTSTRAP_KEY: is of region "${parts.region}", but COPPICE_REGION is "${region}"`,
  );
}

function readManifest(path: string): Manifest {
  if (!existsSync(path)) throw new ConfigError(`${path} is missing: run "npm run setup" first`);
  const parsed = Manifest.safeParse(JSON.parse(readFileSync(path, 'utf8')));
  if (parsed.success) return parsed.data;
  throw new ConfigError(
    `${path} is not of this version (${z.prettifyError(parsed.error)}): run "npm run setup" again`,
  );
}

/** A Unix socket's path holds 107 bytes, and a VM's is `<run dir>/v/<23 characters>/data`. */
const MAX_RUN_DIR_BYTES = 70;

function assertShort(runDir: string): void {
  if (Buffer.byteLength(runDir) <= MAX_RUN_DIR_BYTES) return;
  throw new ConfigError(
    `COPPICE_RUN_DIR is longer than ${MAX_RUN_DIR_BYTES} bytes: socket paths in it would not fit`,
  );
}
