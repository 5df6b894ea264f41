/**
 * The only reader of the environment. Settings come from `COPPICE_*` variables, or from the file that
 * `COPPICE_CONFIG` names (default /etc/coppice/coppice.env, `NAME=value` lines; the environment wins).
 * docs/reference/configuration.md lists all settings, and a test checks that.
 */
import { existsSync, readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { parseEnv } from 'node:util';
import { parseApiKey } from '@coppice/contract';
import { z } from 'zod';
import { isInvitation } from '../control/accounts/organizations/invitation-token.ts';
import { CPU_SETTINGS } from '../lib/cpu-setting.ts';
import { ACCOUNT_SETTINGS } from './account-settings.ts';
import { splitList } from './comma-list.ts';
import { ConfigError } from './config-error.ts';
import { CONFIGURATION_FILE, selectSettings } from './default-paths.mjs';
import { EGRESS_SETTINGS } from './egress-settings.ts';
import { EXPOSURE_SETTINGS } from './exposure-settings.ts';
import { REGION_SETTINGS } from './region-settings.ts';
import { WEBHOOK_SETTINGS } from './webhook-settings.ts';
import { ObjectStoreSetting } from './object-store-setting.ts';
import { TRACING_SETTINGS } from './tracing-settings.ts';

const flagList = z.string().transform(splitList);

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

const INTERNAL_ADDRESS = /^(?:[\w.-]+|\[[0-9a-fA-F:]+\]):\d{1,5}$/u;

/** Every variable that the service reads, with its default. */
export const Settings = z.object({
  COPPICE_DATA_DIR: z.string().optional(),
  COPPICE_RUN_DIR: z.string().optional(),
  COPPICE_ASSETS_DIR: z.string().optional(),
  COPPICE_LISTEN: Listen.prefault('127.0.0.1:8080'),
  ...EXPOSURE_SETTINGS,
  COPPICE_INTERNAL_LISTEN: Listen.optional(),
  COPPICE_INTERNAL_ADDRESS: z
    .string()
    .regex(INTERNAL_ADDRESS, 'must be host:port, such as 10.0.0.1:9444, with an IPv6 address in brackets')
    .optional(),
  COPPICE_RUNNER_LISTEN: Listen.optional(),
  ...REGION_SETTINGS,
  COPPICE_BOOTSTRAP_KEY: z.string().optional(),
  COPPICE_BOOTSTRAP_INVITATION: z
    .string()
    .refine(isInvitation, {
      error: 'is malformed; an invitation looks like inv_<43 of A–Z, a–z, 0–9, _ and ->',
    })
    .optional(),
  COPPICE_SIGN_UP: z.enum(['invited', 'open'], { error: 'must be invited or open' }).default('invited'),
  COPPICE_USER: z.string().default('coppice'),
  COPPICE_METRICS_TOKEN: z
    .string()
    .regex(/^[\x21-\x7e]{16,256}$/u, 'must be 16 to 256 visible ASCII characters without a space')
    .refine((token) => parseApiKey(token) === undefined, { error: 'must not be an API key' })
    .optional(),
  COPPICE_LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal']).default('info'),
  COPPICE_REGISTRY_MIRRORS: Mirrors.prefault(''),
  COPPICE_INSECURE_REGISTRIES: flagList.prefault(''),
  COPPICE_ACCELERATOR: z.enum(['auto', 'kvm', 'tcg'], { error: 'must be auto, kvm or tcg' }).default('auto'),
  COPPICE_CPU: z.enum(CPU_SETTINGS, { error: `must be one of ${CPU_SETTINGS.join(', ')}` }).default('host'),
  COPPICE_NETWORK: z.enum(['auto', 'on', 'off']).default('auto'),
  COPPICE_GUEST_CIDR: z
    .string()
    .regex(/^\d+\.\d+\.\d+\.\d+\/\d+$/u, 'must be an IPv4 range, such as 10.202.0.0/16')
    .optional(),
  COPPICE_OPEN_PRIVATE_RANGES: flagList.prefault(''),
  COPPICE_RESOLVERS: flagList.prefault(''),
  ...EGRESS_SETTINGS,
  ...WEBHOOK_SETTINGS,
  COPPICE_WARM_POOL: z.coerce.number().int().min(0).max(64).default(4),
  COPPICE_MEM_OVERCOMMIT: z.coerce.number().min(0.1).max(100).default(2),
  COPPICE_CPU_OVERCOMMIT: z.coerce.number().min(0.1).max(1000).default(16),
  COPPICE_DISK_RESERVE_MIB: z.coerce.number().int().min(64).max(1_000_000_000).default(2048),
  COPPICE_IMAGE_CACHE_MIB: z.coerce.number().int().min(0).max(1_000_000_000).default(20_480),
  COPPICE_DISK_BACKLOG_MIB: z.coerce.number().int().min(64).max(1_000_000_000).default(8192),
  COPPICE_DISK_CACHE_MIB: z.coerce.number().int().min(0).max(1_000_000_000).default(10_240),
  ...ACCOUNT_SETTINGS,
  COPPICE_UID_BASE: z.coerce.number().int().min(1000).max(2_000_000_000).optional(),
  COPPICE_DEADLINE_FACTOR: z.coerce.number().min(1).max(100).default(1),
  COPPICE_FAULT_DIR: z.string().optional(),
  COPPICE_OBJECT_STORE: ObjectStoreSetting.prefault('directory'),
  DATABASE_URL: z.string().optional(),
  ...TRACING_SETTINGS,
});
export type Settings = z.infer<typeof Settings>;

/** Settings, and the variables of the configuration file from which the client of the object store takes credentials. */
export type ReadSettings = Settings & { storeVariables: Readonly<Record<string, string>> };

export function readSettings(environment: NodeJS.ProcessEnv): ReadSettings {
  const path = environment['COPPICE_CONFIG'] ?? CONFIGURATION_FILE;
  if (environment['COPPICE_CONFIG'] !== undefined && !existsSync(path)) {
    throw new ConfigError(`COPPICE_CONFIG names ${path}, which does not exist`);
  }
  const file = selectSettings(readSettingsFile(path), environment);
  const parsed = Settings.safeParse({ ...file, ...environment });
  if (parsed.success) return { ...parsed.data, storeVariables: selectStoreVariables(file, environment) };
  const issue = parsed.error.issues[0];
  throw new ConfigError(`${issue?.path.join('.') ?? 'configuration'}: ${issue?.message ?? 'is invalid'}`);
}

/** Selects the `AWS_*` variables of the file that the environment does not set. */
function selectStoreVariables(
  file: NodeJS.Dict<string>,
  environment: NodeJS.ProcessEnv,
): Record<string, string> {
  const entries = Object.entries(file).filter(
    (entry): entry is [string, string] => /^AWS_[A-Z0-9_]+$/u.test(entry[0]) && entry[1] !== undefined,
  );
  return Object.fromEntries(entries.filter(([name]) => environment[name] === undefined));
}

/** Reads a settings file. If the default file, which is for root's service, is not readable, it counts as empty. */
function readSettingsFile(path: string): NodeJS.Dict<string> {
  if (!existsSync(path)) return {};
  try {
    return parseEnv(readFileSync(path, 'utf8'));
  } catch (error) {
    const isForbidden = (error as NodeJS.ErrnoException).code === 'EACCES';
    if (isForbidden && path === CONFIGURATION_FILE) return {};
    throw new ConfigError(
      `${path} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}
