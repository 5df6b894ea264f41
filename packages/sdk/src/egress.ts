import type { CallOptions } from './transport/client-options.ts';
import type { CallRequest, Transport } from './transport/transport.ts';
import {
  buildWireBody,
  readArray,
  readNumber,
  readObject,
  readOptionalNumber,
  readOptionalString,
  readString,
  type WireObject,
} from './transport/wire.ts';

/**
 * The rules for outbound connections of a sandbox: CIDR ranges, addresses, host names, `*.domain` and `registry:name`.
 * A deny rule overrides every allow rule. If there is an allow rule, or `0.0.0.0/0` is denied, the policy refuses all
 * other connections; otherwise it allows them.
 */
export interface NetworkRules {
  /** Allowed destinations. Default: none. */
  allow?: string[] | undefined;
  /** Denied destinations. Default: none. */
  deny?: string[] | undefined;
}

/** Requests to a service that a credential may sign: each of the methods with each of the paths. */
export interface CredentialEndpoint {
  /** HTTP methods. An empty list means any method. */
  methods: string[];
  /**
   * Paths of the service. An empty list means any path. A plain path is a prefix of whole segments. `*` matches within
   * one segment. A trailing `/*` matches everything below.
   */
  paths: string[];
}

/** Takes the place of a secret in credentials. */
export interface SecretReference {
  /** Name of a secret of `client.secrets`. */
  secret: string;
}

/** A secret, and the requests that it may sign. */
export interface CredentialWithRules {
  /** The secret, or the name of a secret of the organization. */
  key: string | SecretReference;
  /** Requests that the secret may sign. An empty list means none. */
  endpoints: CredentialEndpoint[];
}

/**
 * Secrets, or names of secrets of the organization, by service name: `openai`, `anthropic`, `google`, `github`, `huggingface`, and services that the operator
 * added.
 */
export interface CredentialOptions {
  /** Secrets that sign any request to their service. */
  credentials?: Record<string, string | SecretReference> | undefined;
  /** Secrets that sign only the requests that their rules allow; others are answered 403. */
  credentialsV2?: Record<string, CredentialWithRules> | undefined;
}

/** The outbound network of a new sandbox, and the secrets that the host adds to its requests. */
export interface EgressOptions extends CredentialOptions {
  /** Network rules. Default: no restriction. Excludes `networkProfile`. */
  network?: NetworkRules | undefined;
  /** Name of a profile of `client.networkProfiles()`. Excludes `network`. */
  networkProfile?: string | undefined;
}

/** A named set of network rules that the service offers. */
export interface NetworkProfile {
  /** Name of the profile, for `networkProfile` and `setNetwork()`. */
  name: string;
  /** Description for people. Null if there is none. */
  description: string | null;
  /** Allowed destinations, as the service enforces them. */
  allow: string[];
  /** Denied destinations, as the service enforces them. */
  deny: string[];
}

/**
 * Counters since the sandbox was started, resumed or rolled back. All but the bytes restart at 0 when the runner or its
 * egress process is restarted.
 */
export interface NetworkCounters {
  /**
   * Open connections that the policy allowed. Null while the policy restricts nothing, because the host's kernel then
   * counts no connections.
   */
  connectionsOpen: number | null;
  /** Connections that the policy allowed, including ended ones. Null as for `connectionsOpen`. */
  connectionsAllowed: number | null;
  /** Connections that the policy refused, and packets that the host dropped. */
  connectionsBlocked: number;
  /**
   * Bytes of all packets that the sandbox sent on its network interface, including headers, DNS and refused packets.
   * Commands, files and ports of the API do not use that interface.
   */
  bytesSent: number;
  /** Bytes of all packets that the sandbox received, counted as `bytesSent`. */
  bytesReceived: number;
  /** DNS questions that were answered without an error. */
  namesResolved: number;
  /** DNS questions that the policy refused. */
  namesRefused: number;
  /** Requests that the host signed with a credential. */
  requestsProxied: number;
}

/** The network policy of a sandbox. */
export interface NetworkInfo {
  /** Name of the profile that the rules come from. Null if they come from `network`. */
  networkProfile: string | null;
  /** The rules in force, with registries and profiles resolved. */
  network: { allow: string[]; deny: string[] };
  /** Traffic counters. Null while the sandbox is hibernated, or when they are not available. */
  counters: NetworkCounters | null;
  /** Rules of a change that have no effect. Empty for `sandbox.network()`. */
  warnings: string[];
}

/** A service whose requests the host signs. It never includes the secret. */
export interface CredentialInfo {
  /** Name of the service. */
  service: string;
  /** Requests that the host signs. Null means any request. */
  endpoints: CredentialEndpoint[] | null;
  /** Name of the secret of the organization. Null if the credential has a value of its own. */
  secret: string | null;
  /** Time of the last change, ISO 8601 UTC. */
  updatedAt: string;
}

const CREDENTIAL_FIELDS = {
  credentials: 'credentials',
  credentialsV2: 'credentials_v2',
} as const satisfies Record<keyof CredentialOptions, string>;

/** Wire names of the egress options. */
export const EGRESS_FIELDS = {
  ...CREDENTIAL_FIELDS,
  network: 'network',
  networkProfile: 'network_profile',
} as const satisfies Record<keyof EgressOptions, string>;

/** Lists the network profiles of the service. */
export async function fetchNetworkProfiles(
  transport: Transport,
  call: CallOptions,
): Promise<NetworkProfile[]> {
  const answer = await transport.callJson(
    { method: 'GET', path: '/v1/network-profiles', idempotent: true, signal: call.signal },
    (value) => readArray(value, 'the list of network profiles', parseProfile),
  );
  return answer.value;
}

/** Fetches policy and counters of the sandbox at `sandboxPath`. */
export async function fetchNetwork(
  transport: Transport,
  sandboxPath: string,
  call: CallOptions,
): Promise<NetworkInfo> {
  const request: CallRequest = {
    method: 'GET',
    path: `${sandboxPath}/network`,
    idempotent: true,
    signal: call.signal,
  };
  return (await transport.callJson(request, parseNetwork)).value;
}

/** Replaces the policy of the sandbox at `path` by rules, or by the profile of this name. */
export async function putNetwork(
  transport: Transport,
  { path, network }: { path: string; network: NetworkRules | string },
  call: CallOptions,
): Promise<NetworkInfo> {
  const body = typeof network === 'string' ? { network_profile: network } : { network };
  const answer = await transport.callJson(buildPut(`${path}/network`, body, call), parseNetwork);
  return answer.value;
}

/** Lists the services for which the sandbox at `sandboxPath` has a credential. */
export async function fetchCredentials(
  transport: Transport,
  sandboxPath: string,
  call: CallOptions,
): Promise<CredentialInfo[]> {
  const request: CallRequest = {
    method: 'GET',
    path: `${sandboxPath}/credentials`,
    idempotent: true,
    signal: call.signal,
  };
  return (await transport.callJson(request, parseCredentials)).value;
}

/** Replaces all credentials of the sandbox at `path`. Throws `TypeError` for an unknown option. */
export async function putCredentials(
  transport: Transport,
  { path, options }: { path: string; options: CredentialOptions },
  call: CallOptions,
): Promise<CredentialInfo[]> {
  const body = buildWireBody(options, CREDENTIAL_FIELDS, 'setCredentials');
  const answer = await transport.callJson(buildPut(`${path}/credentials`, body, call), parseCredentials);
  return answer.value;
}

function buildPut(path: string, body: object, { signal }: CallOptions): CallRequest {
  return {
    method: 'PUT',
    path,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    idempotent: true,
    signal,
  };
}

function parseProfile(value: unknown): NetworkProfile {
  const profile = readObject(value, 'the network profile');
  return {
    name: readString(profile, 'name'),
    description: readOptionalString(profile, 'description'),
    ...parseRules(profile),
  };
}

function parseNetwork(value: unknown): NetworkInfo {
  const record = readObject(value, 'the network record');
  const { counters } = record;
  return {
    networkProfile: readOptionalString(record, 'network_profile'),
    network: parseRules(readObject(record['network'], 'network')),
    counters: counters === null ? null : parseCounters(readObject(counters, 'counters')),
    warnings: readTexts(record['warnings'], 'warnings'),
  };
}

function parseRules(rules: WireObject): { allow: string[]; deny: string[] } {
  return { allow: readTexts(rules['allow'], 'allow'), deny: readTexts(rules['deny'], 'deny') };
}

function parseCounters(counters: WireObject): NetworkCounters {
  return {
    connectionsOpen: readOptionalNumber(counters, 'connections_open'),
    connectionsAllowed: readOptionalNumber(counters, 'connections_allowed'),
    connectionsBlocked: readNumber(counters, 'connections_blocked'),
    bytesSent: readNumber(counters, 'bytes_sent'),
    bytesReceived: readNumber(counters, 'bytes_received'),
    namesResolved: readNumber(counters, 'names_resolved'),
    namesRefused: readNumber(counters, 'names_refused'),
    requestsProxied: readNumber(counters, 'requests_proxied'),
  };
}

function parseCredentials(value: unknown): CredentialInfo[] {
  return readArray(value, 'the list of credentials', (item) => {
    const record = readObject(item, 'the credential');
    const { endpoints } = record;
    return {
      service: readString(record, 'service'),
      endpoints: endpoints === null ? null : readArray(endpoints, 'endpoints', parseEndpoint),
      secret: readOptionalString(record, 'secret'),
      updatedAt: readString(record, 'updated_at'),
    };
  });
}

function parseEndpoint(value: unknown): CredentialEndpoint {
  const endpoint = readObject(value, 'the endpoint');
  return {
    methods: readTexts(endpoint['methods'], 'methods'),
    paths: readTexts(endpoint['paths'], 'paths'),
  };
}

function readTexts(value: unknown, what: string): string[] {
  return readArray(value, what, (text) => {
    if (typeof text === 'string') return text;
    throw new TypeError(`${what} is not a list of strings`);
  });
}
