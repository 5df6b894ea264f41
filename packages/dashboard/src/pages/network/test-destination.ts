/** Says what a policy does with one connection of a sandbox, and which rule decides. */
import { BLOCK_REASONS, type BlockReason } from '../../../../contract/src/network-policy/block-reason.ts';
import type { CompiledPolicy } from '../../../../contract/src/network-policy/compile-network-policy.ts';
import { foldSeenName, readHostName } from '../../../../contract/src/network-policy/host-name.ts';
import {
  judge,
  judgeQuestion,
  judgeResolved,
  type Verdict,
} from '../../../../contract/src/network-policy/judge.ts';
import { findNameRule } from '../../../../contract/src/network-policy/rule-table.ts';
import { findAddressKind, findWritten, type CheckedPolicy } from './policy-check.ts';
import type { Target } from './read-target.ts';

export interface TestResult {
  verdict: 'allow' | 'refuse' | 'depends';
  /** Why, as a sentence. */
  reason: string;
  /** The rule that decides, as it is written; undefined if none does. */
  rule: { list: 'allow' | 'deny'; index: number; text: string } | undefined;
  /** The reason in the audit log, if it is refused. */
  code: BlockReason | undefined;
}

/** An address for documentation (RFC 5737), neither closed nor likely in a rule: for names whose address is not known. */
const UNKNOWN_ADDRESS = '192.0.2.1';
const REFUSES_REST = 'No allow rule matches, and the policy refuses the rest.';
const ALLOWS_REST = 'No rule matches, and the policy allows the rest.';

export function testDestination(policy: CheckedPolicy, target: Target): TestResult {
  const { compiled } = policy;
  if (compiled === undefined) throw new Error('the policy has a fault');
  const address = target.address === undefined ? undefined : findAddressKind(target.address);
  if (address === 6) return refuse('Sandboxes have no IPv6.');
  const result = judgeTarget(policy, compiled, target);
  return considerRegistries(policy, target, result);
}

function judgeTarget(policy: CheckedPolicy, compiled: CompiledPolicy, target: Target): TestResult {
  if (target.name === undefined) return judgeAddressOnly(policy, compiled, target);
  const name = foldName(target.name);
  if (name === undefined) return refuse('This is not a host name, and resolves to nothing.');
  if (judgeQuestion(compiled, name) === 'refused') return refuseName(policy, compiled, name);
  if (target.protocol === 'udp' || target.protocol === 'other')
    return judgeWithoutName(policy, compiled, { ...target, name });
  return judgeNamed(policy, compiled, { ...target, name });
}

/** Programs send names of other scripts as A-labels. */
function foldName(text: string): string | undefined {
  const host = readHostName(text);
  return 'fault' in host ? undefined : foldSeenName(host.name);
}

function judgeAddressOnly(policy: CheckedPolicy, compiled: CompiledPolicy, target: Target): TestResult {
  const { address = '', protocol } = target;
  if (protocol === 'udp') return judgeUdp(policy, compiled, address);
  const shown = { tls: { isNameHidden: true }, http: { name: address }, other: {} }[protocol];
  return explain(policy, judge(compiled, { address, ...shown }));
}

function judgeUdp(policy: CheckedPolicy, compiled: CompiledPolicy, address: string): TestResult {
  const verdict = judge(compiled, { address });
  if (compiled.path === 'proxy' && verdict.action === 'allow') return refuseCode('protocol_not_allowed');
  return explain(policy, verdict);
}

function refuseName(policy: CheckedPolicy, compiled: CompiledPolicy, name: string): TestResult {
  const rule = findNameRule(compiled.deny, name);
  const verdict: Verdict = {
    action: 'deny',
    reason: rule === undefined ? 'not_allowed' : 'denied_by_rule',
    rule,
  };
  const result = explain(policy, verdict);
  return { ...result, reason: `${result.reason} The name does not resolve in the sandbox.` };
}

/** The connection shows its name: TLS and HTTP. */
function judgeNamed(
  policy: CheckedPolicy,
  compiled: CompiledPolicy,
  target: Target & { name: string },
): TestResult {
  const { name, address } = target;
  if (judgeQuestion(compiled, name) === 'allowed_addresses' && address === undefined)
    return depends('The name has no rule: it resolves to those of its addresses that an allow rule matches.');
  const resolved = judgeResolved(compiled, name, address ?? UNKNOWN_ADDRESS);
  if (address !== undefined && resolved.action === 'deny') return explain(policy, resolved);
  const verdict = judge(compiled, { address: address ?? UNKNOWN_ADDRESS, name });
  const result = explain(policy, verdict);
  if (address !== undefined || verdict.action === 'deny') return result;
  return { ...result, reason: `${result.reason}${describeAddresses(compiled)}` };
}

function describeAddresses({ deny }: CompiledPolicy): string {
  return deny.ranges.length === 0 ? '' : ' An address to which it resolves must not be in a denied range.';
}

/** Protocols such as SSH show no name, so the address that the name resolves to decides. */
function judgeWithoutName(policy: CheckedPolicy, compiled: CompiledPolicy, target: Target): TestResult {
  const { address, protocol } = target;
  if (compiled.path === 'kernel' && address === undefined)
    return { verdict: 'allow', reason: ALLOWS_REST, rule: undefined, code: undefined };
  if (protocol === 'udp') {
    if (compiled.path === 'proxy') return refuseCode('protocol_not_allowed');
    return judgeUdp(policy, compiled, address ?? UNKNOWN_ADDRESS);
  }
  if (address !== undefined) return explain(policy, judge(compiled, { address }));
  if (compiled.allow.ranges.length > 0 || compiled.deny.ranges.length > 0)
    return depends('This protocol shows no name, so its address decides. Enter the address, too.');
  return explain(policy, judge(compiled, { address: UNKNOWN_ADDRESS }));
}

function explain({ rules }: CheckedPolicy, verdict: Verdict): TestResult {
  const list = verdict.action;
  const written = verdict.rule === undefined ? undefined : findWritten(rules[list], verdict.rule);
  const rule = written === undefined ? undefined : { list, ...written };
  if (verdict.action === 'deny') return { ...refuseCode(verdict.reason), rule };
  const isRest = verdict.rule === undefined;
  const reason = isRest
    ? ALLOWS_REST
    : verdict.dial === 'name'
      ? 'A rule allows the name.'
      : 'A rule allows the address.';
  return { verdict: 'allow', reason, rule, code: undefined };
}

/** A host of a registry looks like any other here. Deny rules take precedence, so only they can turn an allow. */
function considerRegistries(policy: CheckedPolicy, { name }: Target, result: TestResult): TestResult {
  const { allow, deny } = policy.registries;
  if (name === undefined) return result;
  if (result.verdict === 'refuse' && result.code !== 'denied_by_rule' && allow.length > 0)
    return depends(
      `No other rule matches: it is allowed if it is a host of ${allow.join(' or ')}, which the service knows.`,
    );
  if (result.verdict === 'allow' && deny.length > 0)
    return depends(`It is allowed unless it is a host of ${deny.join(' or ')}, which the service knows.`);
  return result;
}

function refuseCode(code: BlockReason): TestResult {
  const reason = code === 'not_allowed' ? REFUSES_REST : BLOCK_REASONS[code];
  return { verdict: 'refuse', reason, rule: undefined, code };
}

function refuse(reason: string): TestResult {
  return { verdict: 'refuse', reason, rule: undefined, code: undefined };
}

function depends(reason: string): TestResult {
  return { verdict: 'depends', reason, rule: undefined, code: undefined };
}
