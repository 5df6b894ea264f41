/** Audit entries of networks and credentials: they contain rules and services, never a secret. */
import { createHash } from 'node:crypto';
import { canonicalize, findNetworkPath, type AuditData, type NetworkPolicy } from '@coppice/contract';
import type { AuditNote } from '../audit/audit-chain.ts';
import type { Grant } from './grant.ts';

/** A policy with more rules is logged only with their number and hash. */
const MAX_TOLD_RULES = 100;

export function buildPolicyNote(policy: NetworkPolicy): AuditNote {
  return { event: 'policy.changed', data: describePolicy(policy) };
}

export function buildCredentialsNote(grants: readonly Grant[]): AuditNote {
  const credentials = grants.map(({ service, endpoints }) => ({
    service,
    endpoints: endpoints === null ? null : [...endpoints],
  }));
  return { event: 'credentials.changed', data: { credentials } };
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
