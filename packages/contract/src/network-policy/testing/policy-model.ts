/** A plain model of the meaning of policies: it checks every rule, and addresses are lists of octets. */
import fc from 'fast-check';
import type { NetworkRules } from '../network-schemas.ts';
import type { Destination, NameResolution } from '../judge.ts';

const NETWORK = '203.0.113.';
const CATCH_ALLS = ['0.0.0.0/0', '*'];
const LABELS = ['a', 'b', 'c'];
const MAX_OCTET = 32;
const ALL_ADDRESSES = Array.from({ length: MAX_OCTET }, (_, octet) => `${NETWORK}${octet}`);

export type ModelVerdict = 'deny' | 'address' | 'name';

const name = fc
  .array(fc.constantFrom(...LABELS), { minLength: 1, maxLength: 4 })
  .map((labels) => labels.join('.'));
const range = fc.tuple(fc.integer({ min: 27, max: 32 }), fc.nat(MAX_OCTET - 1)).map(([prefix, octet]) => {
  const size = 2 ** (32 - prefix);
  const first = octet - (octet % size);
  return prefix === 32 ? `${NETWORK}${first}` : `${NETWORK}${first}/${prefix}`;
});
const specific = fc.oneof(
  name,
  name.map((text) => `*.${text}`),
  range,
);

/** Generates pairs of lists without a common rule. */
export const someRules: fc.Arbitrary<NetworkRules> = fc
  .record({
    allow: fc.array(specific, { maxLength: 6 }),
    deny: fc.array(specific, { maxLength: 4 }),
    catchAll: fc.constantFrom('none', 'allow', 'deny'),
    text: fc.constantFrom(...CATCH_ALLS),
  })
  .map(({ allow, deny, catchAll, text }) => ({
    allow: [...allow, ...(catchAll === 'allow' ? [text] : [])],
    deny: [...deny.filter((rule) => !allow.includes(rule)), ...(catchAll === 'deny' ? [text] : [])],
  }));

export const someAddress = fc.nat(MAX_OCTET).map((octet) => `${NETWORK}${octet}`);
export const someName = name;

export const someDestination: fc.Arbitrary<Destination> = fc.record({
  address: someAddress,
  name: fc.option(name, { nil: undefined }),
  isNameHidden: fc.boolean(),
});

export function modelVerdict(rules: NetworkRules, destination: Destination): ModelVerdict {
  const { address, isNameHidden = false } = destination;
  const shown = isNameHidden ? undefined : destination.name;
  const allow = rules.allow.filter((rule) => !CATCH_ALLS.includes(rule));
  const deny = rules.deny.filter((rule) => !CATCH_ALLS.includes(rule));
  const letsPass = defaultOf(rules) === 'allow';
  const namesMatter = deny.some(isName) || (!letsPass && allow.some(isName));
  if (deny.some((rule) => isIn(rule, address))) return 'deny';
  if (shown !== undefined && deny.some((rule) => isNamed(rule, shown))) return 'deny';
  if (allow.some((rule) => isIn(rule, address))) return 'address';
  if (!namesMatter) return letsPass ? 'address' : 'deny';
  if (isNameHidden) return 'deny';
  if (shown === undefined) return letsPass ? 'address' : 'deny';
  return letsPass || allow.some((rule) => isNamed(rule, shown)) ? 'name' : 'deny';
}

export function modelResolution(rules: NetworkRules, question: string): NameResolution {
  if (rules.deny.some((rule) => isNamed(rule, question))) return 'refused';
  if (defaultOf(rules) === 'allow' || rules.allow.some((rule) => isNamed(rule, question)))
    return 'any_address';
  const isOpen = (rule: string): boolean => ALL_ADDRESSES.some((address) => isIn(rule, address));
  const isClosed = (rule: string): boolean =>
    rules.deny.some((other) =>
      ALL_ADDRESSES.every((address) => !isIn(rule, address) || isIn(other, address)),
    );
  return rules.allow.some((rule) => isOpen(rule) && !isClosed(rule)) ? 'allowed_addresses' : 'refused';
}

function defaultOf({ allow, deny }: NetworkRules): 'allow' | 'deny' {
  if (allow.some((rule) => CATCH_ALLS.includes(rule))) return 'allow';
  return allow.length > 0 || deny.some((rule) => CATCH_ALLS.includes(rule)) ? 'deny' : 'allow';
}

function isName(rule: string): boolean {
  return !rule.startsWith(NETWORK) && !CATCH_ALLS.includes(rule);
}

function isNamed(rule: string, shown: string): boolean {
  if (!isName(rule)) return false;
  return rule.startsWith('*.') ? shown.endsWith(rule.slice(1)) : shown === rule;
}

function isIn(rule: string, address: string): boolean {
  if (isName(rule) || CATCH_ALLS.includes(rule)) return false;
  const [first = '', prefix = '32'] = rule.slice(NETWORK.length).split('/');
  const octet = Number(address.slice(NETWORK.length));
  return octet >= Number(first) && octet < Number(first) + 2 ** (32 - Number(prefix));
}
