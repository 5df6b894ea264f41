/** The services of an installation: the built-in ones and those of the operator's own file. */
import { invalidRequest } from '@coppice/contract';
import { z } from 'zod';
import { BUILTIN_SERVICES } from './builtin-services.ts';
import { CredentialService, listVariables } from './credential-service.ts';

const MAX_OWN_SERVICES = 64;

/** `replace` must be set to replace a built-in row, because that changes the host that receives its secrets. */
const ServiceFile = z.strictObject({
  services: z.array(CredentialService.extend({ replace: z.boolean().default(false) })).max(MAX_OWN_SERVICES),
});
type ServiceFile = z.infer<typeof ServiceFile>;

export interface ServiceCatalogue {
  services: ReadonlyMap<string, CredentialService>;
  /** Built-in services that the operator's file replaces; to be logged at each start. */
  replaced: readonly string[];
}

/**
 * Builds the catalogue. `content`: the operator's file as parsed JSON, undefined for none. Throws an Error that names
 * the fault and its place.
 */
export function buildServiceCatalogue(content?: unknown): ServiceCatalogue {
  const own = content === undefined ? [] : parseFile(content).services;
  const services = new Map(BUILTIN_SERVICES.map((service) => [service.name, service]));
  const builtin = new Set(services.keys());
  const seen = new Set<string>();
  for (const [index, { replace, ...service }] of own.entries()) {
    const { name } = service;
    if (seen.has(name)) throw new Error(`services[${index}].name: ${name} occurs twice`);
    if (replace !== builtin.has(name))
      throw new Error(`services[${index}].${describeReplace(name, replace)}`);
    seen.add(name);
    services.set(name, service);
  }
  refuseSharedVariables(services);
  return { services, replaced: [...seen].filter((name) => builtin.has(name)).sort() };
}

function parseFile(content: unknown): ServiceFile {
  const result = ServiceFile.safeParse(content);
  if (result.success) return result.data;
  throw new Error(invalidRequest(result.error, { where: 'file', input: content }).message);
}

function describeReplace(name: string, replace: boolean): string {
  return replace
    ? `replace: there is no built-in service ${name} to replace; remove it`
    : `name: ${name} is built in; write "replace": true to send its secrets to another host, or choose another name`;
}

/** Refuses a variable of two services: its value would depend on the order in which they were granted. */
function refuseSharedVariables(services: ReadonlyMap<string, CredentialService>): void {
  const owners = new Map<string, string>();
  for (const service of services.values()) {
    for (const variable of new Set(listVariables(service))) {
      const owner = owners.get(variable);
      if (owner !== undefined)
        throw new Error(`${service.name}: the variable ${variable} belongs to ${owner}; choose another one`);
      owners.set(variable, service.name);
    }
  }
}
