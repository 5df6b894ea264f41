/**
 * What a guest finds in its environment in place of secrets. A placeholder authorizes nothing, here or elsewhere: the proxy
 * tells sandboxes by the address they connect to and drops what they send. It names the sandbox and the service, so that one
 * that turns up in a log tells where it came from.
 */
import { listBaseUrlVariables, listKeyVariables, type CredentialService } from './credential-service.ts';
import { buildBaseUrl } from './proxy-address.ts';

export interface GuestEnvironmentOptions {
  sandboxId: string;
  /** Those that something is granted of. */
  services: readonly CredentialService[];
  /** Of the credential proxy; the same for ever, as running processes keep their environment over fork and resume. */
  port: number;
}

export function buildPlaceholder(sandboxId: string, service: CredentialService): string {
  return `${service.placeholder_prefix}coppice-placeholder-${sandboxId}-${service.name}`;
}

/** Names and values, to be laid under what an exec sets itself. */
export function buildGuestEnvironment(options: GuestEnvironmentOptions): Record<string, string> {
  const { sandboxId, services, port } = options;
  const variables: [string, string][] = [];
  for (const service of services) {
    const placeholder = buildPlaceholder(sandboxId, service);
    const baseUrl = buildBaseUrl(port, service.name);
    for (const [name, value] of Object.entries(service.other_variables)) variables.push([name, value]);
    for (const name of listBaseUrlVariables(service)) variables.push([name, baseUrl]);
    for (const name of listKeyVariables(service)) variables.push([name, placeholder]);
  }
  return Object.fromEntries(variables);
}
