/** Audit entries of networks and credentials: they contain rules and services, never a secret. */
import { createHash } from 'node:crypto';
import { canonicalize, findNetworkPath, type AuditData, type NetworkPolicy } from '@coppice/contract';
import type { AuditNote } from '../audit/audit-chain.ts';
import type { OpenGrant } from './grant.ts';
import type { Rotated } from './grants.ts';

/** A policy with more rules is logged only with their number and hash. */
const MAX_TOLD_RULES = 100;

export function buildPolicyNote(policy: NetworkPolicy): AuditNote {
  return { event: 'policy.changed', data: describePolicy(policy) };
}

export function buildCredentialsNote(grants: readonly OpenGrant[]): AuditNote {
  const credentials = grants.map(({ service, endpoints, named }) => ({
    service,
    endpoints: endpoints === null ? null : [...endpoints],
    ...(named === null ? {} : { secret: named.name }),
  }));
  return { event: 'credentials.changed', data: { credentials } };
}

export function buildRotatedNote(rotated: readonly Rotated[]): AuditNote {
  const credentials = rotated.map(({ service, secret, version }) => ({ service, secret, version }));
  return { event: 'credentials.rotated', data: { credentials } };
}

export function describePolicy({
  profile,
  default: standard,
  allow,
  deny,
}: NetworkPolicy): AuditData<'policy.changed'> {
  const rules = allow.length + deny.length;
  const isOpen = findNetworkPath({ default: standard, deny }) === 'kernel';
  const text = canonicalize({ default: standard, allow, deny });
  return {
    policy: profile ?? (isOpen ? 'unrestricted' : 'rules'),
    default: standard,
    rules,
    ...(rules > MAX_TOLD_RULES ? {} : { allow, deny }),
    sha256: createHash('sha256').update(text).digest('hex'),
  };
}
