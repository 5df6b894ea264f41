/** Wire form of a sandbox's network policy, as a create requests it and as it is changed while the sandbox exists. */
import { z } from 'zod';
import { NetworkProfileName, NetworkRules } from '../network-policy/network-schemas.ts';

/** Body of `PUT /v1/runs/{id}/network`. */
export const PutNetworkRequest = z
  .strictObject({ network: NetworkRules.optional(), network_profile: NetworkProfileName.optional() })
  .refine((body) => body.network !== undefined || body.network_profile !== undefined, {
    error: 'must have network or network_profile',
  })
  .meta({ id: 'PutNetworkRequest' });
export type PutNetworkRequest = z.infer<typeof PutNetworkRequest>;

/** The kernel counts bytes; processes of the service count the rest, in memory. */
export const NetworkCounters = z
  .object({
    connections_open: z
      .int()
      .nullable()
      .describe(
        'Open connections that the policy allowed; null while the policy restricts nothing, because then none are counted.',
      ),
    connections_allowed: z.int().nullable().describe('As connections_open, but also those that have ended.'),
    connections_blocked: z
      .int()
      .describe('Connections that the policy refused, and packets that the host dropped.'),
    bytes_sent: z
      .int()
      .describe(
        "Bytes of all packets on the sandbox's network interface, under any policy: with headers, DNS and refused packets. " +
          'Traffic of the API itself (commands, files, ports) does not use that interface.',
      ),
    bytes_received: z.int().describe('As bytes_sent.'),
    names_resolved: z.int(),
    names_refused: z.int(),
    requests_proxied: z.int().describe('Requests to which the host added a credential.'),
  })
  .meta({ id: 'NetworkCounters' });
export type NetworkCounters = z.infer<typeof NetworkCounters>;

/** Answer of `GET` and `PUT /v1/runs/{id}/network`. */
export const NetworkRecord = z
  .object({
    network_profile: z.string().nullable().describe('The profile from which the rules were built.'),
    network: NetworkRules.describe('The rules in force; registries and profiles are resolved.'),
    counters: NetworkCounters.nullable().describe(
      'Since the sandbox was started, resumed or rolled back. All but the bytes start again at 0 when the runner ' +
        'or its egress process restarts. Null while the sandbox is hibernated, or when the counters are unavailable.',
    ),
    warnings: z.array(z.string()).describe('After a change: rules that have no effect.'),
  })
  .meta({ id: 'Network' });
export type NetworkRecord = z.infer<typeof NetworkRecord>;
