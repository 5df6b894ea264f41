/**
 * Builds the head of the upstream request from the head of a guest's request. It is pure: the caller finds the sandbox
 * by the source address of the connection, checks `host` and `port` against the network policy, and dials with verified
 * TLS.
 *
 *     target ─ parseProxyTarget ─ service, grant ─ buildOutboundRequest ─ policy ─ buildHeaderList ─ upstream
 */
import { CREDENTIAL_METHODS } from '@coppice/contract';
import type { CredentialService } from '../../../lib/credential-services/credential-service.ts';
import { Secret } from '../../../lib/secret.ts';
import { judgeEndpoint, type EndpointRules } from './endpoint-rules.ts';
import { normalizePath, placeUnderBase } from './normalize-path.ts';
import { buildFraming, selectHeaders, type Field } from './outbound-headers.ts';
import { buildOutboundQuery } from './outbound-query.ts';
import type { ProxyTarget } from './proxy-target.ts';
import { accept, refuse, type Checked } from './refusal.ts';
import { buildUpgrade, wantsWebSocket } from './web-socket-upgrade.ts';

const METHODS: ReadonlySet<string> = new Set(CREDENTIAL_METHODS);
/** Methods for which a request without a body must state that; otherwise node:http would announce a chunked body. */
const METHODS_WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH']);
const NO_BODY: Field = ['content-length', '0'];
const DEFAULT_PORT = 443;

/** The head of a guest's request. */
export interface GuestRequest {
  method: string;
  target: ProxyTarget;
  /** Alternating names and values, as received. */
  rawHeaders: readonly string[];
}

/** The credential of a sandbox for one service. */
export interface HeldCredential {
  service: CredentialService;
  /** undefined if the credential is granted, but control has not sent the secret again since the runner started. */
  secret: Secret | undefined;
  rules: EndpointRules;
}

/** The head of an upstream request. It holds the secret only as a `Secret`, so it may be logged. */
export interface OutboundRequest {
  method: string;
  host: string;
  port: number;
  /** Path and query. */
  target: string;
  /** Path without the query, for the audit log. */
  path: string;
  isUpgrade: boolean;
  /** All fields, including hop-by-hop ones, except the authentication. */
  fields: readonly Field[];
  authentication: { name: string; value: Secret };
}

export function buildOutboundRequest(
  request: GuestRequest,
  { service, secret, rules }: HeldCredential & { secret: Secret },
): Checked<OutboundRequest> {
  const { method, target, rawHeaders } = request;
  if (!METHODS.has(method)) return refuse('method');
  const normalized = normalizePath(target.rawPath);
  if (!normalized.ok) return normalized;
  const path = placeUnderBase(normalized.value, service.base_path);
  const verdict = judgeEndpoint(rules, method, path);
  if (!verdict.ok) return verdict;
  const query = buildOutboundQuery(target.rawQuery ?? '', service.dropped_parameters);
  if (!query.ok) return query;
  const fields = buildFields(request, service);
  if (!fields.ok) return fields;
  return accept({
    method,
    host: service.host,
    port: service.port,
    target: query.value === '' ? path.text : `${path.text}?${query.value}`,
    path: path.text,
    isUpgrade: wantsWebSocket(rawHeaders),
    fields: fields.value,
    authentication: buildAuthentication(service, secret),
  });
}

/** Returns the header list in plain text with the secret. Use it only for the upstream connection. */
export function buildHeaderList({ fields, authentication }: OutboundRequest): string[] {
  return [...fields.flat(), authentication.name, authentication.value.reveal()];
}

export function hasBody({ fields }: OutboundRequest): boolean {
  return fields.some(
    ([name, value]) => name === 'transfer-encoding' || (name === 'content-length' && value !== '0'),
  );
}

function buildFields({ method, rawHeaders }: GuestRequest, service: CredentialService): Checked<Field[]> {
  const selected = selectHeaders(rawHeaders, service);
  if (!selected.ok) return selected;
  const framing = buildFraming(rawHeaders);
  if (!framing.ok) return framing;
  const upgrade = buildUpgrade({ method, rawHeaders, service });
  if (!upgrade.ok) return upgrade;
  const isBodyOnUpgrade = upgrade.value.length > 0 && framing.value.some(([, value]) => value !== '0');
  if (isBodyOnUpgrade) return refuse('upgrade');
  const { host, port } = service;
  const authority = port === DEFAULT_PORT ? host : `${host}:${port}`;
  const body = framing.value.length === 0 && METHODS_WITH_BODY.has(method) ? [NO_BODY] : framing.value;
  return accept([['host', authority] satisfies Field, ...selected.value, ...body, ...upgrade.value]);
}

function buildAuthentication(service: CredentialService, secret: Secret): { name: string; value: Secret } {
  const { authentication } = service;
  if (authentication.kind === 'header') {
    const { header, prefix } = authentication;
    return { name: header, value: new Secret(`${prefix}${secret.reveal()}`) };
  }
  const pair = Buffer.from(`${authentication.username}:${secret.reveal()}`).toString('base64');
  return { name: 'authorization', value: new Secret(`Basic ${pair}`) };
}
