/** Foreign chains on this host that decide about forwarded packets, from the output of `nft --json list ruleset`. */
import { z } from 'zod';

const Entry = z.looseObject({
  table: z.unknown().optional(),
  chain: z
    .object({
      family: z.string(),
      table: z.string(),
      name: z.string(),
      hook: z.string().optional(),
      policy: z.string().optional(),
    })
    .optional(),
  rule: z
    .object({
      family: z.string(),
      table: z.string(),
      chain: z.string(),
      expr: z.array(z.unknown()).default([]),
    })
    .optional(),
});
const Ruleset = z.object({ nftables: z.array(Entry) });
type Entry = z.infer<typeof Entry>;

const OUR_TABLE = /^coppice_(?:[0-9a-f]{4}|doctor_\d+)$/u;
const ROUTED_FAMILIES = new Set(['ip', 'inet']);

export interface ForeignChain {
  family: string;
  table: string;
  chain: string;
  /** Whether the chain's `policy` or its `rules` drop packets that it does not accept. */
  drops: 'policy' | 'rules';
  /** Whether Docker's chain for foreign accept rules exists; Docker's own rules come before all others. */
  hasDockerUser: boolean;
  /** Whether a rule names interfaces of Coppice. A probe with another interface name then proves little. */
  namesOurs: boolean;
}

/** Returns foreign chains at the forward hook that can drop guests' packets. `tapPrefix`: prefix of Coppice's TAPs. */
export function findForeignDrops(rulesetJson: string, tapPrefix: string): ForeignChain[] {
  const { nftables } = Ruleset.parse(JSON.parse(rulesetJson));
  const rules = nftables.flatMap(({ rule }) => (rule === undefined ? [] : [rule]));
  const chains = nftables.flatMap(({ chain }) => (chain === undefined ? [] : [chain]));
  return chains
    .filter(
      ({ hook, family, table }) =>
        hook === 'forward' && ROUTED_FAMILIES.has(family) && !OUR_TABLE.test(table),
    )
    .flatMap((chain) => {
      const ofTable = rules.filter((rule) => rule.family === chain.family && rule.table === chain.table);
      const own = reachableFrom(chain.name, ofTable);
      const isDropping = own.some((rule) => hasVerdict(rule.expr, 'drop') || hasVerdict(rule.expr, 'reject'));
      if (chain.policy !== 'drop' && !isDropping) return [];
      const isSibling = (name: string) =>
        chains.some(
          (other) => other.name === name && other.table === chain.table && other.family === chain.family,
        );
      return [
        {
          family: chain.family,
          table: chain.table,
          chain: chain.name,
          drops: chain.policy === 'drop' ? ('policy' as const) : ('rules' as const),
          hasDockerUser: isSibling('DOCKER-USER'),
          namesOurs: own.some((rule) => JSON.stringify(rule.expr).includes(tapPrefix)),
        },
      ];
    });
}

type Rule = NonNullable<Entry['rule']>;

/** Returns the rules of a chain and of all chains to which it jumps. */
function reachableFrom(chain: string, rules: readonly Rule[], seen = new Set<string>()): Rule[] {
  if (seen.has(chain)) return [];
  seen.add(chain);
  const own = rules.filter((rule) => rule.chain === chain);
  const targets = own.flatMap(targetsOf);
  return own.concat(targets.flatMap((target) => reachableFrom(target, rules, seen)));
}

function targetsOf({ expr }: Rule): string[] {
  return [...JSON.stringify(expr).matchAll(/"(?:jump|goto)":\{"target":"([^"]+)"\}/gu)].map(
    ([, name]) => name ?? '',
  );
}

function hasVerdict(expr: readonly unknown[], verdict: string): boolean {
  return expr.some((part) => typeof part === 'object' && part !== null && Object.hasOwn(part, verdict));
}

export function describeForeign({ family, table, chain, drops }: ForeignChain): string {
  const how = drops === 'policy' ? 'its policy is drop' : 'its rules drop some packets';
  return `table ${family} ${table}, chain ${chain} (${how})`;
}

/** Returns a shell command that accepts guests' packets and their answers. It lasts until the firewall reloads. */
export function remedyFor({ family, table, chain, hasDockerUser }: ForeignChain): string {
  if (family === 'ip' && table === 'filter' && chain === 'FORWARD') {
    const into = hasDockerUser ? 'DOCKER-USER' : 'FORWARD';
    return `iptables -I ${into} -i cop+ -j ACCEPT && iptables -I ${into} -o cop+ -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT`;
  }
  const at = `nft insert rule ${family} ${table} ${chain}`;
  return `${at} iifname '"cop*"' accept && ${at} oifname '"cop*"' ct state established,related accept`;
}
