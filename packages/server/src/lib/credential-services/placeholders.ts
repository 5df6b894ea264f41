/**
 * Placeholders in a guest's environment instead of secrets. A placeholder authorizes nothing, here or elsewhere: the
 * proxy identifies sandboxes by the address to which they connect, and removes the placeholder. It names the sandbox
 * and the service, so a placeholder in a log shows its origin.
 */
import { listBaseUrlVariables, listKeyVariables, type CredentialService } from './credential-service.ts';
import { buildBaseUrl } from './proxy-address.ts';

export interface GuestEnvironmentOptions {
  sandboxId: string;
  /** Services for which the sandbox has a grant. */
  services: readonly CredentialService[];
  /**
   * Port of the credential proxy. It never changes, because processes keep their environment across fork and resume.
   */
  port: number;
}

export function buildPlaceholder(sandboxId: string, service: CredentialService): string {
  return `${service.placeholder_prefix}coppice-placeholder-${sandboxId}-${service.name}`;
}

/** Returns names and values of variables; variables that an exec sets itself override them. */
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
