/**
 * The verdict on one connection of a guest. A connection is judged in up to three steps:
 *
 *     judgeAddress    by the destination address, before a byte is read; undefined: a name is needed
 *     judge           by the name as well, once the guest has shown one or it is clear that it shows none
 *     judgeResolved   by each address to which Coppice's resolver resolves the name, if the name is dialled
 *
 * Before it connects, a guest queries the address of a name: `judgeQuestion` says how far the query is answered.
 *
 * The guest chooses the address and the name independently of each other, so a name proves nothing about the address
 * that the guest chose. A connection that a name allows is therefore dialled by that name. Only an address that an
 * address rule allows by itself is dialled directly. A deny rule that matches the name or the address takes precedence
 * over all of this.
 */
import type { BlockReason } from './block-reason.ts';
import { findClosedReason } from './closed-addresses.ts';
import type { CompiledPolicy } from './compile-network-policy.ts';
import { foldSeenName } from './host-name.ts';
import { parseIpAddress } from './ip-address.ts';
import { findAddressRule, findNameRule } from './rule-table.ts';

export interface Destination {
  /** Address to which the guest connects. */
  address: string;
  /** Host name that the guest showed (SNI or Host header), as it was sent, without a port. */
  name?: string | undefined;
  /** The guest speaks a protocol that shows a name, but the name is encrypted, absent or unreadable. */
  isNameHidden?: boolean;
}

/** The remote end of an open connection. */
export interface DialledEnd {
  address: string;
  /** The name that was resolved to the address; undefined if the address was dialled directly. */
  name?: string | undefined;
}

interface Allowed {
  action: 'allow';
  /** The rule that allows the connection; undefined if the policy's default does. */
  rule: string | undefined;
}

export type Verdict =
  | (Allowed & { dial: 'address' })
  /** `name` is the spelling to resolve and to dial. */
  | (Allowed & { dial: 'name'; name: string })
  | { action: 'deny'; reason: BlockReason; rule: string | undefined };

/** Returns the verdict if the address alone decides, else undefined. */
export function judgeAddress(policy: CompiledPolicy, address: string): Verdict | undefined {
  const value = parseIpAddress(address);
  return value === undefined ? deny('reserved_address') : judgeValue(policy, value);
}

export function judge(policy: CompiledPolicy, destination: Destination): Verdict {
  const value = parseIpAddress(destination.address);
  if (value === undefined) return deny('reserved_address');
  const early = judgeValue(policy, value);
  if (early !== undefined) return early;
  const shown = readShownName(destination, value);
  if (shown.kind === 'name') {
    const rule = findNameRule(policy.deny, shown.name);
    if (rule !== undefined) return deny('denied_by_rule', rule);
  }
  const addressRule = findAddressRule(policy.allow, value);
  if (addressRule !== undefined) return { action: 'allow', dial: 'address', rule: addressRule };
  if (shown.kind === 'unreadable') return deny(shown.reason);
  if (shown.kind === 'name') return judgeName(policy, shown.name);
  if (policy.default === 'deny') return deny('name_missing');
  return { action: 'allow', dial: 'address', rule: undefined };
}

/**
 * How far a name is resolved for a guest. A name to which no connection could follow is not queried, because every
 * query that leaves the host can carry data out.
 *
 *     refused             a deny rule matches the name, or no rule could allow its addresses
 *     any_address         the name is allowed, so its addresses need no allow rule
 *     allowed_addresses   only addresses that an address rule allows
 */
export type NameResolution = 'refused' | 'any_address' | 'allowed_addresses';

export function judgeQuestion(policy: CompiledPolicy, name: string): NameResolution {
  const folded = foldSeenName(name);
  if (folded === undefined || isDenied(policy, folded)) return 'refused';
  if (judgeName(policy, folded).action === 'allow') return 'any_address';
  return policy.allowsAddresses ? 'allowed_addresses' : 'refused';
}

/** Judges an address to which Coppice's resolver resolved `name`. It needs no allow rule if the name has one. */
export function judgeResolved(policy: CompiledPolicy, name: string, address: string): Verdict {
  const value = parseIpAddress(address);
  if (value === undefined) return deny('reserved_address');
  const refusal = findRefusal(policy, value);
  if (refusal !== undefined) return refusal;
  const resolution = judgeQuestion(policy, name);
  if (resolution === 'refused') return denyName(policy, name);
  const rule = findAddressRule(policy.allow, value);
  if (resolution === 'allowed_addresses' && rule === undefined) return deny('not_allowed');
  return { action: 'allow', dial: 'address', rule };
}

/** Whether a name in a CNAME chain is denied. Such a name needs no allow rule, but no deny rule may match it. */
export function isNameDenied(policy: CompiledPolicy, name: string): boolean {
  const folded = foldSeenName(name);
  return folded === undefined ? policy.deny.hasNames : isDenied(policy, folded);
}

/**
 * Judges a connection that is open to `dialled` under a newer policy. Also refuses it if the new policy would dial
 * elsewhere: by a name to which `dialled` need not belong.
 */
export function judgeFlow(policy: CompiledPolicy, destination: Destination, dialled: DialledEnd): Verdict {
  const verdict = judge(policy, destination);
  if (verdict.action === 'deny' || dialled.address === destination.address)
    return verdictOnDialled(verdict, dialled);
  return verdictOnDialled(judge(policy, { ...destination, address: dialled.address }), dialled);
}

function judgeValue(policy: CompiledPolicy, address: bigint): Verdict | undefined {
  const refusal = findRefusal(policy, address);
  if (refusal !== undefined) return refusal;
  const rule = findAddressRule(policy.allow, address);
  if (rule !== undefined && !policy.deny.hasNames) return { action: 'allow', dial: 'address', rule };
  if (policy.default === 'allow') {
    return policy.needsNames ? undefined : { action: 'allow', dial: 'address', rule: undefined };
  }
  return rule !== undefined || policy.allow.hasNames ? undefined : deny('not_allowed');
}

/** Refuses a connection whose name, if dialled now, differs from the name that was dialled. */
function verdictOnDialled(verdict: Verdict, { name }: DialledEnd): Verdict {
  const isOther = verdict.action === 'allow' && verdict.dial === 'name' && verdict.name !== name;
  return isOther ? deny('name_not_resolved') : verdict;
}

/** Returns the refusal of an address that holds for every name. */
function findRefusal(policy: CompiledPolicy, address: bigint): Verdict | undefined {
  const closed = findClosedReason(policy.closed, address);
  if (closed !== undefined) return deny(closed);
  const rule = findAddressRule(policy.deny, address);
  return rule === undefined ? undefined : deny('denied_by_rule', rule);
}

type ShownName =
  | { kind: 'none' }
  | { kind: 'name'; name: string }
  | { kind: 'unreadable'; reason: 'name_hidden' | 'name_invalid' };

/** An address in place of a name is not a name, and must be the address to which the guest connects. */
function readShownName({ name, isNameHidden = false }: Destination, address: bigint): ShownName {
  if (isNameHidden) return { kind: 'unreadable', reason: 'name_hidden' };
  if (name === undefined) return { kind: 'none' };
  const folded = foldSeenName(name);
  if (folded !== undefined) return { kind: 'name', name: folded };
  const literal = name.startsWith('[') && name.endsWith(']') ? name.slice(1, -1) : name;
  return parseIpAddress(literal) === address
    ? { kind: 'none' }
    : { kind: 'unreadable', reason: 'name_invalid' };
}

/** Judges a name that no deny rule matches. */
function judgeName(policy: CompiledPolicy, name: string): Verdict {
  const rule = findNameRule(policy.allow, name);
  if (rule === undefined && policy.default === 'deny') return deny('not_allowed');
  return { action: 'allow', dial: 'name', name, rule };
}

function denyName(policy: CompiledPolicy, name: string): Verdict {
  return deny(isNameDenied(policy, name) ? 'denied_by_rule' : 'not_allowed');
}

function isDenied(policy: CompiledPolicy, name: string): boolean {
  return findNameRule(policy.deny, name) !== undefined;
}

function deny(reason: BlockReason, rule?: string): Verdict {
  return { action: 'deny', reason, rule };
}
