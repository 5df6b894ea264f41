/**
 * Judges a request before a connection is opened for it: form, grant, endpoint rules, and the policy for the host name.
 */
import type { IncomingMessage } from 'node:http';
import { isNameDenied, judgeQuestion, type BlockReason, type CompiledPolicy } from '@coppice/contract';
import { toErrorAnswer, type ErrorAnswer } from './answer-error.ts';
import { normalizePath, placeUnderBase } from './normalize-path.ts';
import { buildOutboundRequest, type HeldCredential, type OutboundRequest } from './outbound-request.ts';
import { ProxyFault } from './proxy-fault.ts';
import { parseProxyTarget, type ProxyTarget } from './proxy-target.ts';
import { buildRefusal, type Refusal } from './refusal.ts';
import { traceSecrets, type SecretTraces } from './secret-traces.ts';

const FORBIDDEN = 403;

/** The fields of a request in the audit log, except its status. */
export interface RequestName {
  service: string;
  method: string;
  /** Path at the service, without the query. */
  path: string;
}

export interface AcceptedRequest {
  kind: 'accepted';
  name: RequestName;
  outbound: OutboundRequest;
  traces: SecretTraces;
}

export type Judgement =
  | AcceptedRequest
  /** `name` is set if the refusal goes to the audit log. */
  | { kind: 'refused'; answer: ErrorAnswer; name?: RequestName }
  | { kind: 'blocked'; answer: ErrorAnswer; host: string; port: number; reason: BlockReason };

/** The current rights of the guest that sends the request. */
export interface Rights {
  policy: CompiledPolicy;
  grants: ReadonlyMap<string, HeldCredential>;
}

export function judgeRequest(
  request: Pick<IncomingMessage, 'method' | 'url' | 'rawHeaders'>,
  { policy, grants }: Rights,
): Judgement {
  const { method = '', url = '', rawHeaders } = request;
  const target = parseProxyTarget(url);
  if (!target.ok) return { kind: 'refused', answer: toErrorAnswer(target.refusal) };
  const held = grants.get(target.value.service);
  if (held === undefined) return { kind: 'refused', answer: toErrorAnswer(buildRefusal('service')) };
  const { service, secret, rules } = held;
  if (secret === undefined)
    return { kind: 'refused', answer: toErrorAnswer(new ProxyFault('secret_missing')) };
  const built = buildOutboundRequest(
    { method, target: target.value, rawHeaders },
    { service, secret, rules },
  );
  if (!built.ok) return refused(built.refusal, method, target.value, held);
  const { host, port, path, authentication } = built.value;
  const reason = judgeName(policy, host);
  if (reason !== undefined)
    return { kind: 'blocked', answer: toErrorAnswer(new ProxyFault('network_policy')), host, port, reason };
  return {
    kind: 'accepted',
    name: { service: service.name, method, path },
    outbound: built.value,
    traces: traceSecrets(secret, authentication.value),
  };
}

/** Returns the judgement of a refused request. Only forbidden requests, not malformed ones, go to the audit log. */
function refused(
  refusal: Refusal,
  method: string,
  { rawPath }: ProxyTarget,
  { service }: HeldCredential,
): Judgement {
  const answer = toErrorAnswer(refusal);
  const path = normalizePath(rawPath);
  if (refusal.status !== FORBIDDEN || !path.ok) return { kind: 'refused', answer };
  const { text } = placeUnderBase(path.value, service.base_path);
  return { kind: 'refused', answer, name: { service: service.name, method, path: text } };
}

/** Returns the reason why the policy refuses the name for every address, or undefined if it does not. */
function judgeName(policy: CompiledPolicy, host: string): BlockReason | undefined {
  if (judgeQuestion(policy, host) !== 'refused') return undefined;
  return isNameDenied(policy, host) ? 'denied_by_rule' : 'not_allowed';
}
