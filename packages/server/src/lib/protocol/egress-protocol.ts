/**
 * The network policy of a sandbox and the secrets that the host adds to its requests. Control sends them to the runner,
 * and the runner sends them to its egress process. They contain secrets as text: never log them, and keep them only in
 * memory.
 */
import { CredentialEndpoint, findNetworkPath, NetworkCounters, NetworkPolicy } from '@coppice/contract';
import { z } from 'zod';
import { CredentialService } from '../credential-services/credential-service.ts';

const MAX_GRANTS = 16;

/** A secret that the host adds to the sandbox's requests to one service. */
const EgressGrant = z.strictObject({
  service: CredentialService,
  /** null: any request. */
  endpoints: z.array(CredentialEndpoint).nullable(),
  /** null: the runner was restarted, and control has not sent the secret yet. */
  secret: z.string().min(1).nullable(),
});
type EgressGrant = z.infer<typeof EgressGrant>;

/** The complete policy and grants of one sandbox; a service without a grant is not granted. */
export const VmEgress = z.strictObject({
  network: NetworkPolicy,
  grants: z.array(EgressGrant).max(MAX_GRANTS),
});
export type VmEgress = z.infer<typeof VmEgress>;

/** Whether a sandbox has neither rules nor grants, so it need not wait for them to be in force. */
export function hasNoRules({ network, grants }: VmEgress): boolean {
  return findNetworkPath(network) === 'kernel' && grants.length === 0;
}

/** Counters since the sandbox received its address; those of a resumed sandbox start at 0. */
export const EgressCounters = NetworkCounters;
export type EgressCounters = NetworkCounters;

/** Counters that the egress process keeps for a guest. */
export const JudgedCounters = z.strictObject({
  connections_open: z.int(),
  connections_allowed: z.int(),
  connections_blocked: z.int(),
  names_resolved: z.int(),
  names_refused: z.int(),
  requests_proxied: z.int(),
});
export type JudgedCounters = z.infer<typeof JudgedCounters>;

export const NO_JUDGED_COUNTERS: Readonly<JudgedCounters> = {
  connections_open: 0,
  connections_allowed: 0,
  connections_blocked: 0,
  names_resolved: 0,
  names_refused: 0,
  requests_proxied: 0,
};

/** Events for the sandbox's audit log (docs/reference/audit.md), each with its time. */
export const EgressNote = z.discriminatedUnion('event', [
  z.object({
    event: z.literal('network.blocked'),
    ts: z.iso.datetime(),
    data: z.object({
      domain: z.string().optional(),
      ip: z.string().optional(),
      port: z.int().optional(),
      reason: z.string(),
      /** Number of refusals of the same destination and reason. */
      count: z.int().positive(),
    }),
  }),
  z.object({
    event: z.literal('credential.proxied'),
    ts: z.iso.datetime(),
    data: z.object({ service: z.string(), method: z.string(), path: z.string(), status: z.int() }),
  }),
]);
export type EgressNote = z.infer<typeof EgressNote>;
