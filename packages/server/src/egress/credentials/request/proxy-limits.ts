/** What a guest may hold of the credential proxy, and for how long while nothing moves. */
export interface ProxyLimits {
  maxConnectionsPerGuest: number;
  maxConnections: number;
  headTimeoutMs: number;
  /** Between requests. */
  keepAliveMs: number;
  /** In which nothing of the request's body moves. */
  bodyIdleMs: number;
  /** In which the service thinks, or nothing of its answer moves. */
  answerIdleMs: number;
  webSocketIdleMs: number;
}

export const PROXY_LIMITS: ProxyLimits = {
  maxConnectionsPerGuest: 128,
  maxConnections: 8_192,
  headTimeoutMs: 15_000,
  // Above the 90 s for which the most patient of the usual clients keeps an idle connection.
  keepAliveMs: 120_000,
  bodyIdleMs: 60_000,
  // Models think for minutes before the first byte of an answer.
  answerIdleMs: 15 * 60_000,
  webSocketIdleMs: 60 * 60_000,
};
