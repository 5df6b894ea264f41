/** The header `traceparent` of W3C Trace Context: https://www.w3.org/TR/trace-context/#traceparent-header. */

/** Names a span of this process or another one. */
export interface SpanContext {
  /** 32 hex digits. */
  traceId: string;
  /** 16 hex digits. */
  spanId: string;
  isSampled: boolean;
}

/** A later version may add fields at the end; version 0 has none, and `ff` is no version. */
const TRACEPARENT =
  /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/u;
const SAMPLED = 1;

/** Returns undefined for a header that is missing or invalid. */
export function parseTraceparent(header: string | string[] | undefined): SpanContext | undefined {
  const match = typeof header === 'string' ? TRACEPARENT.exec(header) : null;
  if (match === null) return undefined;
  const [, version, traceId = '', spanId = '', flags = '', more] = match;
  if (version === '00' && more !== undefined) return undefined;
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & SAMPLED) !== 0 };
}

export function formatTraceparent({ traceId, spanId, isSampled }: SpanContext): string {
  return `00-${traceId}-${spanId}-0${isSampled ? SAMPLED : 0}`;
}
