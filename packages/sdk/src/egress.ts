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
 * What a sandbox may connect to: CIDR ranges, addresses, host names and `*.domain`. What is denied is refused even where it
 * is allowed. With something allowed, or `0.0.0.0/0` denied, all else is refused; without, all else passes.
 */
export interface NetworkRules {
  allow?: string[] | undefined;
  deny?: string[] | undefined;
}

/** What may be asked of a service. An empty list of methods, or of paths, means any. */
export interface CredentialEndpoint {
  methods: string[];
  /** A plain path is a prefix of whole segments, `*` stays within a segment, a trailing `/*` is everything below. */
  paths: string[];
}

/** A secret with rules about what it may be used for. */
export interface CredentialWithRules {
  key: string;
  /** Empty: nothing. */
  endpoints: CredentialEndpoint[];
}

/** Secrets by service: `openai`, `anthropic`, `google`, `github`, `huggingface`, and what the operator added. */
export interface CredentialOptions {
  /** Any request to the service is signed. */
  credentials?: Record<string, string> | undefined;
  /** Only what the rules allow. */
  credentialsV2?: Record<string, CredentialWithRules> | undefined;
}

/** What of the outside a new sandbox may reach, and the secrets that the host adds to its requests. */
export interface EgressOptions extends CredentialOptions {
  network?: NetworkRules | undefined;
  /** One of `client.networkProfiles()`, in place of `network`. */
  networkProfile?: string | undefined;
}

/** One of `client.networkProfiles()`. */
export interface NetworkProfile {
  name: string;
  description: string | null;
  allow: string[];
  deny: string[];
}

/** Since the sandbox was started or resumed. */
export interface NetworkCounters {
  /** That a policy has let pass; null while it restricts nothing: the kernel of the host then counts none. */
  connectionsOpen: number | null;
  /** As `connectionsOpen`, and those that have ended. */
  connectionsAllowed: number | null;
  /** Connections that the policy has refused, and packets that the host has dropped. */
  connectionsBlocked: number;
  /** Of all packets on the sandbox's network interface, headers, DNS and those that were refused included. */
  bytesSent: number;
  bytesReceived: number;
  namesResolved: number;
  namesRefused: number;
  /** With a credential. */
  requestsProxied: number;
}

/** The network policy of a sandbox. */
export interface NetworkInfo {
  /** The profile that the rules were made from. */
  networkProfile: string | null;
  /** What is in force. */
  network: { allow: string[]; deny: string[] };
  /** Null while the sandbox is hibernated, or when they cannot be had. */
  counters: NetworkCounters | null;
  /** Of a change: rules that change nothing. */
  warnings: string[];
}

/** A service whose requests the host signs. The secret is never shown. */
export interface CredentialInfo {
  service: string;
  /** Null: any request. */
  endpoints: CredentialEndpoint[] | null;
  /** ISO 8601 UTC. */
  updatedAt: string;
}

const CREDENTIAL_FIELDS = {
  credentials: 'credentials',
  credentialsV2: 'credentials_v2',
} as const satisfies Record<keyof CredentialOptions, string>;

export const EGRESS_FIELDS = {
  ...CREDENTIAL_FIELDS,
  network: 'network',
  networkProfile: 'network_profile',
} as const satisfies Record<keyof EgressOptions, string>;

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

export async function putNetwork(
  transport: Transport,
  { path, network }: { path: string; network: NetworkRules | string },
  call: CallOptions,
): Promise<NetworkInfo> {
  const body = typeof network === 'string' ? { network_profile: network } : { network };
  const answer = await transport.callJson(buildPut(`${path}/network`, body, call), parseNetwork);
  return answer.value;
}

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
