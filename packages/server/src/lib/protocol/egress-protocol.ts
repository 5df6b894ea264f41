/**
 * What a sandbox may send out and which secrets the host adds to it: told by control to the runner, by the runner to its
 * egress process. Secrets are in here as text: nothing of it may be logged, or kept anywhere but in memory.
 */
import { CredentialEndpoint, findNetworkPath, NetworkCounters, NetworkPolicy } from '@coppice/contract';
import { z } from 'zod';
import { CredentialService } from '../credential-services/credential-service.ts';

const MAX_GRANTS = 16;

/** A secret that the host adds to the sandbox's requests to one service. */
export const EgressGrant = z.strictObject({
  service: CredentialService,
  /** null: any request. */
  endpoints: z.array(CredentialEndpoint).nullable(),
  /** null: the runner was started again, and control has not told it yet. */
  secret: z.string().min(1).nullable(),
});
export type EgressGrant = z.infer<typeof EgressGrant>;

/** The whole of it for one sandbox; what it does not name is not granted. */
export const VmEgress = z.strictObject({
  network: NetworkPolicy,
  grants: z.array(EgressGrant).max(MAX_GRANTS),
});
export type VmEgress = z.infer<typeof VmEgress>;

/** Nothing depends on it that a sandbox has to wait for. */
export function hasNoRules({ network, grants }: VmEgress): boolean {
  return findNetworkPath(network) === 'kernel' && grants.length === 0;
}

/** Since the sandbox has its address; a resumed one begins at 0. */
export const EgressCounters = NetworkCounters;
export type EgressCounters = NetworkCounters;

/** What the egress process counts of a guest that it was told of. */
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

/** As they go into the sandbox's audit log (docs/reference/audit.md), with when it was. */
export const EgressNote = z.discriminatedUnion('event', [
  z.object({
    event: z.literal('network.blocked'),
    ts: z.iso.datetime(),
    data: z.object({
      domain: z.string().optional(),
      ip: z.string().optional(),
      port: z.int().optional(),
      reason: z.string(),
      /** How many refusals of the same destination and reason it stands for. */
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
