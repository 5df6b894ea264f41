/**
 * Decides whether a credential may sign a request. `credentials_v2` rules are compiled once and match in linear time.
 */
import { parsePathRule, type CredentialEndpoint, type PathRule, type SegmentRule } from '@coppice/contract';
import type { NormalizedPath } from './normalize-path.ts';
import { accept, refuse, type Checked } from './refusal.ts';

interface EndpointRule {
  /** Allowed methods. undefined means any. */
  methods: ReadonlySet<string> | undefined;
  paths: readonly PathRule[] | undefined;
}

/** The rules of a credential. null means no rules, which allows any request. An empty list allows none. */
export type EndpointRules = readonly EndpointRule[] | null;

export function compileEndpointRules(endpoints: readonly CredentialEndpoint[] | null): EndpointRules {
  if (endpoints === null) return null;
  return endpoints.map(({ methods, paths }) => ({
    methods: methods.length === 0 ? undefined : new Set<string>(methods),
    paths: paths.length === 0 ? undefined : paths.map(parsePathRule),
  }));
}

/** Judges a request. `path` is the path at the service, including the base path. */
export function judgeEndpoint(
  rules: EndpointRules,
  method: string,
  path: NormalizedPath,
): Checked<undefined> {
  if (rules === null) return accept(undefined);
  const ofMethod = rules.filter(({ methods }) => methods === undefined || methods.has(method));
  const isAllowed = ofMethod.some(
    ({ paths }) =>
      paths === undefined ||
      (!path.hasEncodedSlash && paths.some((rule) => matchesPath(rule, path.segments))),
  );
  if (isAllowed) return accept(undefined);
  return refuse(path.hasEncodedSlash && ofMethod.length > 0 ? 'encoded-slash' : 'endpoint-rule');
}

function matchesPath({ segments: rule, tail }: PathRule, segments: readonly string[]): boolean {
  if (segments.length < rule.length) return false;
  if (tail === 'exact' && segments.length !== rule.length) return false;
  if (tail === 'below' && segments.length === rule.length) return false;
  return rule.every((pieces, index) => matchesSegment(pieces, segments[index] ?? ''));
}

/** Takes the leftmost match of each piece between the wildcards, so it never backtracks for any input of the guest. */
function matchesSegment(pieces: SegmentRule, segment: string): boolean {
  const [first = '', ...rest] = pieces;
  const last = rest.pop();
  if (last === undefined) return segment === first;
  if (!segment.startsWith(first)) return false;
  let from = first.length;
  for (const piece of rest) {
    const at = segment.indexOf(piece, from);
    if (at === -1) return false;
    from = at + piece.length;
  }
  return segment.length >= from + last.length && segment.endsWith(last);
}
