/** Wire form of the secrets that the host adds to a sandbox's requests. No answer contains a secret. */
import { z } from 'zod';
import { findPathRuleFault, MAX_PATH_RULE_BYTES, parsePathRule, type PathRule } from './credential-paths.ts';
import { AppError } from '../errors.ts';
import { Timestamp } from '../fields.ts';
import { SecretReference, secretValue } from './secrets.ts';

/** TRACE is excluded because it would show the secret to the guest, CONNECT because it would bypass the rules. */
export const CREDENTIAL_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;
export type CredentialMethod = (typeof CREDENTIAL_METHODS)[number];

const MAX_SERVICES = 16;
const MAX_ENDPOINTS = 32;
const MAX_METHODS = 16;
const MAX_PATHS = 64;
/** Limit for one request, all services together: a proxied request may be compared with all paths of one service. */
const MAX_PATHS_IN_ALL = 512;

/** Short, because errors show the name: a secret in the place of the name must not pass for one. */
export const SERVICE_NAME = /^(?=.{1,24}$)[a-z][a-z0-9]*(?:-[a-z0-9]+)*$/u;

export const CredentialServiceName = z.string().regex(SERVICE_NAME, {
  error:
    'the names in it must be short names of services, such as "openai": 1–24 of a–z, 0–9, "-". The secret is the value',
});

const CredentialKey = z
  .union([
    secretValue('must be a string, or {"secret": "<name>"} for a secret of the organization'),
    SecretReference,
  ])
  .describe('The secret itself, or the name of a secret of the organization.');

const EndpointMethod = z
  .string({ error: 'must be a string' })
  .toUpperCase()
  .pipe(z.enum(CREDENTIAL_METHODS, { error: `must be one of ${CREDENTIAL_METHODS.join(', ')}` }));

const EndpointPath = z
  .string({ error: 'must be a string' })
  .superRefine((path, context) => {
    const fault = findPathRuleFault(path);
    if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
  })
  .meta({ maxLength: MAX_PATH_RULE_BYTES, example: '/v1/chat/completions' });

export const CredentialEndpoint = z
  .strictObject(
    {
      methods: listOf(EndpointMethod, MAX_METHODS).describe('Empty allows any method.'),
      paths: listOf(EndpointPath, MAX_PATHS).describe(
        'Paths at the service itself. A plain path matches as a prefix of whole segments, "*" matches within a segment, a trailing "/*" matches everything below. Empty allows any path.',
      ),
    },
    { error: 'must be an object with methods and paths' },
  )
  .meta({ id: 'CredentialEndpoint' });
export type CredentialEndpoint = z.infer<typeof CredentialEndpoint>;

const CredentialWithRules = z.strictObject(
  {
    key: CredentialKey,
    endpoints: listOf(CredentialEndpoint, MAX_ENDPOINTS).describe(
      'Requests for which the key may be used. Empty allows none.',
    ),
  },
  { error: 'must be an object with key and endpoints' },
);

export const Credentials = z
  .record(CredentialServiceName, CredentialKey, { error: 'must be an object of service and secret' })
  .refine(hasFewServices, { error: `must have at most ${MAX_SERVICES} services` });
export type Credentials = z.infer<typeof Credentials>;

export const CredentialsV2 = z
  .record(CredentialServiceName, CredentialWithRules, {
    error: 'must be an object of service and {key, endpoints}',
  })
  .refine(hasFewServices, { error: `must have at most ${MAX_SERVICES} services` })
  .refine((all) => countPaths(all) <= MAX_PATHS_IN_ALL, {
    error: `must have at most ${MAX_PATHS_IN_ALL} paths in all`,
  });
export type CredentialsV2 = z.infer<typeof CredentialsV2>;

/** Body of `PUT /v1/runs/{id}/credentials`: grants the named credentials from now on and revokes all others. */
export const PutCredentialsRequest = z
  .strictObject({ credentials: Credentials.optional(), credentials_v2: CredentialsV2.optional() })
  .meta({ id: 'PutCredentialsRequest' });
export type PutCredentialsRequest = z.infer<typeof PutCredentialsRequest>;

export const CredentialRecord = z
  .object({
    service: z.string().meta({ example: 'openai' }),
    endpoints: z.array(CredentialEndpoint).nullable().describe('null allows any request.'),
    secret: z
      .string()
      .nullable()
      .describe('Name of the secret of the organization; null if the credential has a value of its own.'),
    updated_at: Timestamp,
  })
  .meta({ id: 'Credential' });
export type CredentialRecord = z.infer<typeof CredentialRecord>;

/** A grant of either form. `endpoints` is null for the simple form, which allows any request. */
export interface CredentialGrant {
  service: string;
  key: string | SecretReference;
  /** The field of the request that has `key`. */
  field: string;
  endpoints: readonly CredentialEndpoint[] | null;
}

/** The data of a service that `collectGrants` needs. */
export interface GrantableService {
  name: string;
  /** Prefix of every path at the service; empty for none. */
  basePath: string;
}

/**
 * Merges both forms into one list, sorted by service. Throws `conflicting_options` and `invalid_request`. Messages
 * repeat nothing that the caller sent except known names.
 */
export function collectGrants(
  request: PutCredentialsRequest,
  services: readonly GrantableService[],
): CredentialGrant[] {
  const { credentials: simple = {}, credentials_v2: ruled = {} } = request;
  const byName = new Map(services.map((service) => [service.name, service]));
  refuseUnknown('credentials', simple, byName);
  refuseUnknown('credentials_v2', ruled, byName);
  const both = Object.keys(simple).filter((name) => Object.hasOwn(ruled, name));
  if (both.length > 0) {
    throw new AppError(
      'conflicting_options',
      `credentials, credentials_v2: both name ${both.sort().join(', ')}; name each service in one of them`,
    );
  }
  for (const [name, { endpoints }] of Object.entries(ruled))
    refuseOutsideBase(name, endpoints, byName.get(name)?.basePath ?? '');
  return [
    ...Object.entries(simple).map(([service, key]) => ({
      service,
      key,
      field: `credentials.${service}`,
      endpoints: null,
    })),
    ...Object.entries(ruled).map(([service, { key, endpoints }]) => ({
      service,
      key,
      field: `credentials_v2.${service}.key`,
      endpoints,
    })),
  ].sort((a, b) => (a.service < b.service ? -1 : 1));
}

function refuseUnknown(field: string, named: object, known: ReadonlyMap<string, unknown>): void {
  if (Object.keys(named).every((name) => known.has(name))) return;
  const names = [...known.keys()].sort().join(', ');
  throw new AppError('invalid_request', `${field}: names an unknown service; known are ${names}`);
}

/**
 * Refuses a rule such as `/chat/completions` for a service whose paths all begin with `/v1`: it would match nothing.
 */
function refuseOutsideBase(name: string, endpoints: readonly CredentialEndpoint[], basePath: string): void {
  if (basePath === '') return;
  for (const [index, { paths }] of endpoints.entries()) {
    const at = paths.findIndex((path) => !couldReach(parsePathRule(path), basePath));
    if (at === -1) continue;
    throw new AppError(
      'invalid_request',
      `credentials_v2.${name}.endpoints[${index}].paths[${at}]: must begin with ${basePath}, as all paths of ${name} do`,
    );
  }
}

function couldReach({ segments, tail }: PathRule, basePath: string): boolean {
  const base = basePath.slice(1).split('/');
  if (segments.length < base.length && tail === 'exact') return false;
  return base.every((part, index) => {
    const pieces = segments[index];
    return pieces === undefined || pieces.length > 1 || pieces[0] === part;
  });
}

function listOf<Item extends z.ZodType>(item: Item, max: number): z.ZodArray<Item> {
  return z.array(item, { error: 'must be a list' }).max(max, { error: `must have at most ${max} entries` });
}

function hasFewServices(named: object): boolean {
  return Object.keys(named).length <= MAX_SERVICES;
}

function countPaths(all: Readonly<Record<string, { endpoints: readonly CredentialEndpoint[] }>>): number {
  return Object.values(all)
    .flatMap(({ endpoints }) => endpoints)
    .reduce((sum, { paths }) => sum + paths.length, 0);
}
