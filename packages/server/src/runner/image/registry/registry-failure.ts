/** Describes a registry's faults for the caller that requested an image. */
import { AppError, type ErrorCode } from '@coppice/contract';
import type { FaultKind, RegistryFault } from './registry-fault.ts';

interface Context {
  image: string;
  registry: string;
  /** Detail of the fault, in a form that callers may see. */
  detail: string;
}

interface Rule {
  code: ErrorCode;
  explain: (context: Context & { fault: RegistryFault }) => string;
}

const STORE = (registry: string) => `credentials are stored with PUT /v1/registries/${registry}`;

/** Only the operator can change this setting, so a retry does not help. */
const ALLOW = (what: string) => `the operator must allow ${what} with COPPICE_INSECURE_REGISTRIES`;

const RULES: Readonly<Record<FaultKind, Rule>> = {
  'not-found': {
    code: 'image_not_found',
    explain: ({ registry }) => `it is not in the registry ${registry}; check name and tag`,
  },
  'not-shown': {
    code: 'image_not_found',
    explain: ({ registry }) =>
      `the registry ${registry} does not show it; it does not exist, or it is private: ${STORE(registry)}`,
  },
  'credentials-refused': {
    code: 'image_not_found',
    explain: ({ registry }) =>
      `the registry refused the credentials stored for ${registry}; store good ones with PUT /v1/registries/${registry}`,
  },
  'credentials-insufficient': {
    code: 'image_not_found',
    explain: ({ registry }) =>
      `the registry ${registry} does not show it to the credentials stored for it; it does not exist, or they do not allow pulling it`,
  },
  lookup: {
    code: 'registry_unavailable',
    explain: ({ registry, detail }) =>
      `the name of the registry ${named(registry, detail)} cannot be resolved; check its spelling, and this machine's name servers`,
  },
  private: {
    code: 'invalid_image',
    explain: ({ registry, detail }) =>
      isSameHost(registry, detail)
        ? `the registry ${registry} is on a private address; ${ALLOW('it')}`
        : `the registry ${registry} leads to ${detail}, which is on a private address; ${ALLOW('both')}`,
  },
  connect: {
    code: 'registry_unavailable',
    explain: ({ registry, detail }) => `the registry ${named(registry, detail)} cannot be reached`,
  },
  certificate: {
    code: 'registry_unavailable',
    explain: ({ registry, detail }) =>
      `the certificate of the registry ${named(registry, detail)} is not trusted`,
  },
  'plain-http': {
    code: 'invalid_image',
    explain: ({ registry, detail }) =>
      `the registry ${named(registry, detail)} does not speak HTTPS; ${ALLOW('it')}`,
  },
  slow: {
    code: 'registry_unavailable',
    explain: ({ registry, detail }) => `the registry ${registry} is too slow: ${detail}`,
  },
  redirect: {
    code: 'registry_unavailable',
    explain: ({ registry, detail }) => `a redirect of the registry ${registry} is not followed: ${detail}`,
  },
  'not-a-registry': {
    code: 'registry_unavailable',
    explain: ({ registry, detail }) =>
      `${named(registry, detail)} does not answer like an image registry; check the name of the registry`,
  },
  'too-large': {
    code: 'invalid_image',
    explain: ({ detail }) => `its manifest is too large: ${detail}`,
  },
  status: {
    code: 'registry_unavailable',
    explain: ({ registry, detail }) => `the registry ${registry} failed: ${detail}`,
  },
  'rate-limit': {
    code: 'registry_unavailable',
    explain: ({ registry, fault }) =>
      `the registry ${registry} limits the requests of this machine; try again ${
        fault.retryAfterMs === undefined ? 'later' : `in ${Math.ceil(fault.retryAfterMs / 1000)} s`
      }`,
  },
  challenge: {
    code: 'registry_unavailable',
    explain: ({ registry, detail }) => `the login to the registry ${registry} failed: ${detail}`,
  },
  digest: {
    code: 'registry_unavailable',
    explain: ({ registry, detail }) =>
      `the registry ${registry} sent data that does not match its digest (${detail})`,
  },
  short: {
    code: 'registry_unavailable',
    explain: ({ registry, detail }) => `the registry ${registry} broke off its answer: ${detail}`,
  },
  unsupported: { code: 'invalid_image', explain: ({ detail }) => detail },
};

export function describeFault(fault: RegistryFault, context: Context): AppError {
  const { code, explain } = RULES[fault.kind];
  return new AppError(code, `image ${context.image}: ${explain({ ...context, fault })}`, { cause: fault });
}

/**
 * Names the registry, and the party at fault if it is another: a mirror, a login server or the target of a redirect.
 */
function named(registry: string, detail: string): string {
  return isSameHost(registry, detail) ? registry : `${registry} (${detail})`;
}

function isSameHost(registry: string, detail: string): boolean {
  return detail === registry || detail === `registry-1.${registry}`;
}
