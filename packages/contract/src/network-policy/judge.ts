/**
 * The verdict on one connection of a guest. A connection is judged in up to three steps:
 *
 *     judgeAddress    by the address it goes to, before a byte is read; undefined: a name is needed
 *     judge           by the name as well, when the guest has shown one, or has not
 *     judgeResolved   by each address to which our resolver resolves the name, if it is the name that is dialled
 *
 * Before it connects a guest asks for the address of a name: `judgeQuestion` says how far it is answered.
 *
 * The guest chooses the address and the name independently of each other, so a name counts for nothing at an address of
 * the guest's choice: what a name allows is dialled by that name. Only an address that an address rule allows by itself
 * is dialled as it is. A deny rule that a name or an address matches goes before all of this.
 */
import type { BlockReason } from './block-reason.ts';
import { findClosedReason } from './closed-addresses.ts';
import type { CompiledPolicy } from './compile-network-policy.ts';
import { foldSeenName } from './host-name.ts';
import { parseIpAddress } from './ip-address.ts';
import { findAddressRule, findNameRule } from './rule-table.ts';

export interface Destination {
  /** Where the guest connects to. */
  address: string;
  /** What it showed as the host's name: SNI, Host, as it was sent and without a port. */
  name?: string | undefined;
  /** It speaks a protocol that shows a name, but the name is encrypted, absent or cannot be read. */
  isNameHidden?: boolean;
}

/** Where an open connection leads. */
export interface DialledEnd {
  address: string;
  /** The name that was resolved to the address; undefined if the address was dialled as it was. */
  name?: string | undefined;
}

interface Allowed {
  action: 'allow';
  /** The rule that allows it; undefined if it is the policy's default. */
  rule: string | undefined;
}

export type Verdict =
  | (Allowed & { dial: 'address' })
  /** `name` is the spelling to resolve and to dial. */
  | (Allowed & { dial: 'name'; name: string })
  | { action: 'deny'; reason: BlockReason; rule: string | undefined };

/** The verdict if the address alone decides. */
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
 * How far a name is resolved for a guest. What no connection could follow is not asked for: every question that leaves
 * the host is a way out.
 *
 *     refused             a deny rule matches the name, or nothing could allow where it leads
 *     any_address         the name is allowed, so its addresses need no allow rule
 *     allowed_addresses   only those that an address rule allows
 */
export type NameResolution = 'refused' | 'any_address' | 'allowed_addresses';

export function judgeQuestion(policy: CompiledPolicy, name: string): NameResolution {
  const folded = foldSeenName(name);
  if (folded === undefined || isDenied(policy, folded)) return 'refused';
  if (judgeName(policy, folded).action === 'allow') return 'any_address';
  return policy.allowsAddresses ? 'allowed_addresses' : 'refused';
}

/** Of an address to which our resolver resolved `name`: it needs no allow rule of its own if the name has one. */
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

/** Of a name on the way of an answer (CNAME): it needs no allow rule, but must not be a denied one. */
export function isNameDenied(policy: CompiledPolicy, name: string): boolean {
  const folded = foldSeenName(name);
  return folded === undefined ? policy.deny.hasNames : isDenied(policy, folded);
}

/**
 * The verdict on a connection that is open to `dialled`, under a policy that came after. It is refused also where the
 * new policy would dial elsewhere: by a name to which `dialled` need not belong.
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

/** A name that would be dialled now must be the one that was. */
function verdictOnDialled(verdict: Verdict, { name }: DialledEnd): Verdict {
  const isOther = verdict.action === 'allow' && verdict.dial === 'name' && verdict.name !== name;
  return isOther ? deny('name_not_resolved') : verdict;
}

/** What holds for an address whatever name leads to it. */
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

/** An address in place of a name is no name, and must be the one that the guest connects to. */
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

/** A name that is not denied. */
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
