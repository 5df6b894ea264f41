/**
 * Selects the header fields of a service's answer for the guest, as flat lists of names and values (the form of
 * `rawHeaders`). It removes hop-by-hop fields, fields about an origin or a session that is not the guest's, and fields
 * that contain the secret. Node writes the framing anew.
 */
import { listValues, type Field } from '../request/outbound-headers.ts';
import type { SecretTraces } from '../request/secret-traces.ts';

/**
 * `trailer` announces trailers, which the proxy does not guarantee. `keep-alive` and the like are hop-by-hop fields
 * (RFC 9110, 7.6.1).
 */
const DROPPED: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'set-cookie',
  'set-cookie2',
  'alt-svc',
  'strict-transport-security',
]);
const DROPPED_FAMILY = /^proxy-/u;
const NO_CONTENT = 204;

export interface AnswerHead {
  statusCode: number;
  rawHeaders: readonly string[];
}

export function selectAnswerHeaders({ statusCode, rawHeaders }: AnswerHead, traces: SecretTraces): string[] {
  return selectFields(rawHeaders, traces)
    .filter(([name]) => statusCode !== NO_CONTENT || name.toLowerCase() !== 'content-length')
    .flat();
}

/** Selects the fields of an accepted upgrade, which needs `Connection` and `Upgrade`. */
export function selectUpgradeHeaders(rawHeaders: readonly string[], traces: SecretTraces): string[] {
  const kept = selectFields(rawHeaders, traces).filter(([name]) => name.toLowerCase() !== 'content-length');
  return ['Connection', 'Upgrade', 'Upgrade', 'websocket', ...kept.flat()];
}

export function selectTrailers(rawTrailers: readonly string[], traces: SecretTraces): Field[] {
  return selectFields(rawTrailers, traces).filter(([name]) => name.toLowerCase() !== 'content-length');
}

function selectFields(raw: readonly string[], traces: SecretTraces): Field[] {
  const named = listValues(raw, 'connection').flatMap((value) => value.split(','));
  const hopByHop = new Set(named.map((name) => name.trim().toLowerCase()));
  const kept: Field[] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = raw[index] ?? '';
    const value = raw[index + 1] ?? '';
    const lower = name.toLowerCase();
    // A service that lists content-length as hop-by-hop would change how the body is delimited.
    const isDropped =
      DROPPED.has(lower) || DROPPED_FAMILY.test(lower) || (hopByHop.has(lower) && lower !== 'content-length');
    if (!isDropped && !traces.holds(name) && !traces.holds(value)) kept.push([name, value]);
  }
  return kept;
}
