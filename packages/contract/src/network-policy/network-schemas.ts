/** Wire form of network policies, and the form in which they are stored and sent to a runner. */
import { z } from 'zod';
import { boundedText } from '../fields.ts';
import { MAX_RULE_LENGTH } from './network-rule.ts';

/** Limit for both lists together, also after registries are replaced by their hosts. */
export const MAX_RULES = 10_000;
/** Limit for the text of all rules, in characters; less than the limit of a request body. */
export const MAX_RULES_LENGTH = 512 * 1024;
export const MAX_PROFILES = 100;

const RuleList = z
  .array(boundedText(1, MAX_RULE_LENGTH), { error: 'must be an array of rules such as "*.example.com"' })
  .max(MAX_RULES, { error: `must have at most ${MAX_RULES} rules` });

const Allow = RuleList.describe('CIDR ranges, addresses, host names, *.domain, registry:name.');
const Deny = RuleList.describe(
  'As allow; takes precedence over it. 0.0.0.0/0, ::/0 or * refuse everything that is not allowed.',
);

/** `network` of a request: destinations to which the sandbox may connect. Without both lists all are allowed. */
export const NetworkRules = z
  .strictObject({ allow: Allow.default([]), deny: Deny.default([]) }, { error: 'must be an object' })
  .meta({ id: 'NetworkRules' });
export type NetworkRules = z.infer<typeof NetworkRules>;

/** `network_profile` of a request. */
export const NetworkProfileName = z
  .string({ error: 'must be a string' })
  .regex(/^[a-z][a-z0-9-]{0,62}$/u, { error: 'must be 1–63 of a–z, 0–9 and "-", and begin with a letter' });

/** An entry of `GET /v1/network-profiles`. */
export const NetworkProfileRecord = z
  .object({
    name: z.string().meta({ example: 'locked-down' }),
    description: z.string().optional(),
    allow: z.array(z.string()),
    deny: z.array(z.string()),
  })
  .meta({ id: 'NetworkProfile' });
export type NetworkProfileRecord = z.infer<typeof NetworkProfileRecord>;

const NetworkProfileEntry = z.strictObject({
  name: NetworkProfileName,
  description: boundedText(1, 500).optional(),
  allow: Allow.default([]),
  deny: Deny.default([]),
});
export type NetworkProfileEntry = z.infer<typeof NetworkProfileEntry>;

/** The operator's own profiles: a JSON file. */
export const NetworkProfilesFile = z.strictObject({
  profiles: z.array(NetworkProfileEntry, { error: 'must be an array of profiles' }).max(MAX_PROFILES),
});
export type NetworkProfilesFile = z.infer<typeof NetworkProfilesFile>;

const StoredRuleList = z.array(z.string().max(MAX_RULE_LENGTH)).max(MAX_RULES);

/**
 * A self-contained policy: its meaning does not change with profiles, registries or settings. `default` is the verdict
 * for destinations that no rule matches, so the lists have no catch-alls, and an empty list has no rules.
 */
export const NetworkPolicy = z.strictObject({
  version: z.literal(1),
  /** Name of the profile from which the policy was built; informative only. */
  profile: z.string().nullable(),
  default: z.enum(['allow', 'deny']),
  allow: StoredRuleList,
  deny: StoredRuleList,
});
export type NetworkPolicy = z.infer<typeof NetworkPolicy>;
