/** Wire form of what a sandbox may reach, as it is asked for and changed while it lives. */
import { z } from 'zod';
import { NetworkProfileName, NetworkRules } from './network-policy/network-schemas.ts';

/** Body of `PUT /v1/runs/{id}/network`. */
export const PutNetworkRequest = z
  .strictObject({ network: NetworkRules.optional(), network_profile: NetworkProfileName.optional() })
  .refine((body) => body.network !== undefined || body.network_profile !== undefined, {
    error: 'must have network or network_profile',
  })
  .meta({ id: 'PutNetworkRequest' });
export type PutNetworkRequest = z.infer<typeof PutNetworkRequest>;

/** Bytes are counted by the kernel, the rest by processes of the service, in memory. */
export const NetworkCounters = z
  .object({
    connections_open: z
      .int()
      .nullable()
      .describe('That a policy has let pass; null while it restricts nothing: the kernel then counts none.'),
    connections_allowed: z.int().nullable().describe('As connections_open, and those that have ended.'),
    connections_blocked: z
      .int()
      .describe('Connections that the policy has refused, and packets that the host has dropped.'),
    bytes_sent: z
      .int()
      .describe(
        "Of all packets on the sandbox's network interface, under any policy: headers, DNS and those that were refused " +
          'included. What the API itself moves (commands, files, ports) does not pass that interface.',
      ),
    bytes_received: z.int().describe('As bytes_sent.'),
    names_resolved: z.int(),
    names_refused: z.int(),
    requests_proxied: z.int().describe('With a credential.'),
  })
  .meta({ id: 'NetworkCounters' });
export type NetworkCounters = z.infer<typeof NetworkCounters>;

/** Answer of `GET` and `PUT /v1/runs/{id}/network`. */
export const NetworkRecord = z
  .object({
    network_profile: z.string().nullable().describe('The profile that the rules were made from.'),
    network: NetworkRules.describe('What is in force; registries and profiles are resolved.'),
    counters: NetworkCounters.nullable().describe(
      'Since the sandbox was started, resumed or rolled back; all but the bytes begin again at 0 when the runner, ' +
        'or its egress process, is restarted. Null while it is hibernated, or when they cannot be had.',
    ),
    warnings: z.array(z.string()).describe('Of a change: rules that change nothing.'),
  })
  .meta({ id: 'Network' });
export type NetworkRecord = z.infer<typeof NetworkRecord>;
