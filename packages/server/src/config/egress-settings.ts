/** Settings of network profiles, package registries and credential services: from the operator's files and set-up. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { invalidRequest, NetworkProfilesFile } from '@coppice/contract';
import { z } from 'zod';
import { ConfigError } from './config-error.ts';
import { EgressRules, type EgressSettings } from '../control/egress/egress-rules.ts';
import {
  buildServiceCatalogue,
  type ServiceCatalogue,
} from '../lib/credential-services/service-catalogue.ts';

/** File in the assets directory, written by scripts/setup/registries/package-registries.mjs. */
export const REGISTRIES_FILE = 'package-registries.json';
/** Limit of one file. A hundred profiles with the maximum number of rules would exceed it. */
const MAX_FILE_BYTES = 8 << 20;

export const EGRESS_SETTINGS = {
  COPPICE_NETWORK_PROFILES: z.string().optional(),
  COPPICE_CREDENTIAL_SERVICES: z.string().optional(),
};
type Settings = z.infer<z.ZodObject<typeof EGRESS_SETTINGS>> & { COPPICE_OPEN_PRIVATE_RANGES: string[] };

const RegistriesFile = z.object({
  version: z.literal(1),
  registries: z.record(z.string(), z.array(z.string())),
  /** Missing in the file of an older set-up. */
  incomplete: z.array(z.string()).default([]),
});

/** Reads the files. Throws {@link ConfigError} that names the variable, the file and the place in it. */
export function readEgress(settings: Settings, assetsDir: string): EgressSettings {
  const profilesPath = settings.COPPICE_NETWORK_PROFILES;
  const openPrivateRanges = settings.COPPICE_OPEN_PRIVATE_RANGES;
  const registriesPath = join(assetsDir, REGISTRIES_FILE);
  const found = readRegistries(registriesPath);
  const { services, replaced } = readServices(settings.COPPICE_CREDENTIAL_SERVICES);
  const own = {
    openPrivateRanges,
    ...found,
    profiles: profilesPath === undefined ? [] : readProfiles(profilesPath),
    services: [...services.values()],
    replacedServices: replaced,
  };
  assertRules({ ...own, profiles: [], registries: {} }, '');
  assertRules({ ...own, profiles: [] }, `${registriesPath}: `);
  assertRules(own, `COPPICE_NETWORK_PROFILES: ${profilesPath ?? ''}: `);
  return own;
}

function readProfiles(path: string): NetworkProfilesFile['profiles'] {
  const content = readJson('COPPICE_NETWORK_PROFILES', path);
  const parsed = NetworkProfilesFile.safeParse(content);
  if (parsed.success) return parsed.data.profiles;
  const fault = invalidRequest(parsed.error, { where: 'file', input: content });
  throw new ConfigError(`COPPICE_NETWORK_PROFILES: ${path}: ${fault.message}`);
}

function readServices(path: string | undefined): ServiceCatalogue {
  if (path === undefined) return buildServiceCatalogue();
  const content = readJson('COPPICE_CREDENTIAL_SERVICES', path);
  try {
    return buildServiceCatalogue(content);
  } catch (error) {
    throw new ConfigError(
      `COPPICE_CREDENTIAL_SERVICES: ${path}: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}

/** Reads the file of set-up. An older set-up did not write one. */
function readRegistries(path: string): Pick<EgressSettings, 'registries' | 'incompleteRegistries'> {
  if (!existsSync(path)) return { registries: {}, incompleteRegistries: [] };
  const parsed = RegistriesFile.safeParse(readJson('package registries', path));
  if (!parsed.success) throw new ConfigError(`${path} is not of this version: run "npm run setup" again`);
  return { registries: parsed.data.registries, incompleteRegistries: parsed.data.incomplete };
}

function readJson(setting: string, path: string): unknown {
  try {
    const bytes = readFileSync(path);
    if (bytes.length > MAX_FILE_BYTES) throw new Error(`it has more than ${MAX_FILE_BYTES} bytes`);
    return JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`${setting}: ${path} cannot be read: ${reason}`);
  }
}

/** Compiles every rule once, so that the service reports errors when it starts and not to the first caller. */
function assertRules(settings: EgressSettings, place: string): void {
  try {
    void new EgressRules(settings);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const fault = error.message.replaceAll('openPrivateRanges', 'COPPICE_OPEN_PRIVATE_RANGES');
    throw new ConfigError(`${place}${fault}`);
  }
}
