/** Limits on the connections of guests to the credential proxy, and on their idle times. */
export interface ProxyLimits {
  maxConnectionsPerGuest: number;
  maxConnections: number;
  headTimeoutMs: number;
  /** Maximum idle time between requests. */
  keepAliveMs: number;
  /** Maximum time without progress of the request's body. */
  bodyIdleMs: number;
  /** Maximum time until the service's answer starts, and maximum time without progress of the answer. */
  answerIdleMs: number;
  /** Maximum time without bytes in either direction. */
  webSocketIdleMs: number;
}

export const PROXY_LIMITS: ProxyLimits = {
  maxConnectionsPerGuest: 128,
  maxConnections: 8_192,
  headTimeoutMs: 15_000,
  // Above 90 s, the longest time for which a usual client keeps an idle connection.
  keepAliveMs: 120_000,
  bodyIdleMs: 60_000,
  // Models may take minutes until the first byte of an answer.
  answerIdleMs: 15 * 60_000,
  webSocketIdleMs: 60 * 60_000,
};
