/** Passes a guest's request through the pure parts of the credential proxy. */
import assert from 'node:assert/strict';
import type { CredentialEndpoint } from '@coppice/contract';
import type { CredentialService } from '../../../lib/credential-services/credential-service.ts';
import { buildServiceCatalogue } from '../../../lib/credential-services/service-catalogue.ts';
import { Secret } from '../../../lib/secret.ts';
import { compileEndpointRules } from '../request/endpoint-rules.ts';
import { buildHeaderList, buildOutboundRequest, type OutboundRequest } from '../request/outbound-request.ts';
import { parseProxyTarget } from '../request/proxy-target.ts';
import type { Checked } from '../request/refusal.ts';

/** Secret that tests look for where no secret may occur. */
export const SECRET = 'canary-0f1e2d3c4b5a';
const OWN = {
  name: 'acme',
  host: 'api.acme.example',
  port: 8443,
  base_path: '/api/v3',
  authentication: { kind: 'basic', username: 'x-access-token' },
  fixed_headers: { 'x-acme-team': 'blue' },
};
const { services } = buildServiceCatalogue({ services: [OWN] });

interface Sent {
  method?: string;
  rest?: string;
  headers?: string[];
  endpoints?: CredentialEndpoint[] | null;
}

export function build(
  name: string,
  { method = 'POST', rest = '', headers = [], endpoints = null }: Sent,
): Checked<OutboundRequest> {
  const target = parseProxyTarget(`/proxy/${name}${rest}`);
  if (!target.ok) return target;
  const service = services.get(name) as CredentialService;
  const held = { service, secret: new Secret(SECRET), rules: compileEndpointRules(endpoints) };
  return buildOutboundRequest({ method, target: target.value, rawHeaders: headers }, held);
}

export function accepted(name: string, sent: Sent): OutboundRequest & { headers: Map<string, string[]> } {
  const result = build(name, sent);
  assert.ok(result.ok, result.ok ? '' : result.refusal.reason);
  const list = buildHeaderList(result.value);
  const headers = new Map<string, string[]>();
  for (let index = 0; index < list.length; index += 2) {
    const key = (list[index] ?? '').toLowerCase();
    headers.set(key, [...(headers.get(key) ?? []), list[index + 1] ?? '']);
  }
  return { ...result.value, headers };
}

export function refused(name: string, sent: Sent): string {
  const result = build(name, sent);
  return result.ok ? `sent ${result.value.target}` : result.refusal.reason;
}
