/**
 * Sends one HTTP request and awaits the head of its answer, with deadlines. Handles no redirects and no credentials.
 */
import http from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import type { SecureContext } from 'node:tls';
import type { DialGuard } from './dial-guard.ts';
import { isProxied, type ProxySettings } from './proxy.ts';
import { RegistryFault } from './registry-fault.ts';
import type { TransferLimits } from './transfer-limits.ts';

export interface ExchangeRequest {
  method: 'GET' | 'HEAD';
  url: URL;
  headers: Readonly<Record<string, string>>;
  /** Whether the operator named this party. */
  mayBePrivate: boolean;
  isCertificateChecked: boolean;
  signal: AbortSignal;
}

export interface DialerOptions {
  guard: DialGuard;
  proxy: ProxySettings;
  /** The trusted certificate authorities. */
  trust: SecureContext;
  limits: TransferLimits;
}

/** The rest of an unwanted body is read and dropped up to this size, so that its connection can be reused. */
const MAX_DISCARDED_BYTES = 64 * 1024;
const DISCARD_TIMEOUT_MS = 5_000;
const IDLE_TIMEOUT_MS = 30_000;
const USER_AGENT = 'coppice';

interface Pool {
  http: http.Agent;
  https: https.Agent;
}

export class Dialer {
  readonly #options: DialerOptions;
  /** Separate pools: a request that must not reach a private address never finds an open connection to one. */
  readonly #public = makePool();
  readonly #configured = makePool();
  readonly #proxied: Pool;

  constructor(options: DialerOptions) {
    this.#options = options;
    const { httpProxy, httpsProxy } = options.proxy;
    this.#proxied = makePool({
      ...(httpProxy === undefined ? {} : { HTTP_PROXY: httpProxy }),
      ...(httpsProxy === undefined ? {} : { HTTPS_PROXY: httpsProxy }),
    });
  }

  /** Rejects with {@link RegistryFault}, or with the signal's reason. The body must be read or {@link discard}ed. */
  async exchange(request: ExchangeRequest): Promise<http.IncomingMessage> {
    const { url, signal } = request;
    signal.throwIfAborted();
    const { guard, proxy } = this.#options;
    const viaProxy = isProxied(proxy, url);
    if (!viaProxy) guard.checkLiteral(url, request.mayBePrivate);
    else if (!request.mayBePrivate) await guard.checkProxied(url);
    try {
      return await this.#send(request, viaProxy);
    } catch (error) {
      signal.throwIfAborted();
      throw toFault(error, url);
    }
  }

  close(): void {
    for (const pool of [this.#public, this.#configured, this.#proxied]) {
      pool.http.destroy();
      pool.https.destroy();
    }
  }

  #send(request: ExchangeRequest, viaProxy: boolean): Promise<http.IncomingMessage> {
    const { url, method, headers, mayBePrivate, signal } = request;
    const { guard, limits, trust } = this.#options;
    const pool = viaProxy ? this.#proxied : mayBePrivate ? this.#configured : this.#public;
    // The URL itself is not passed: Node would send the user and password in a hostile one.
    const options: https.RequestOptions = {
      method,
      host: url.hostname.replaceAll(/[[\]]/gu, ''),
      port: url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : url.port,
      path: `${url.pathname}${url.search}`,
      headers: { host: url.host, 'user-agent': USER_AGENT, ...headers },
      signal,
      ...(viaProxy ? {} : { lookup: guard.lookupFor(url, mayBePrivate) }),
    };
    const secure = {
      ...options,
      agent: pool.https,
      secureContext: trust,
      rejectUnauthorized: request.isCertificateChecked,
    };
    const sent =
      url.protocol === 'https:' ? https.request(secure) : http.request({ ...options, agent: pool.http });
    return awaitHead(sent, url, limits);
  }
}

function awaitHead(
  sent: http.ClientRequest,
  url: URL,
  limits: TransferLimits,
): Promise<http.IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>();
  const giveUp = (what: string, timeoutMs: number) =>
    setTimeout(
      () => sent.destroy(new RegistryFault('slow', `${url.host} did not ${what} within ${timeoutMs} ms`)),
      timeoutMs,
    );
  const headTimer = giveUp('answer', limits.headTimeoutMs);
  const connectTimer = giveUp('accept the connection', limits.connectTimeoutMs);
  const connected = () => clearTimeout(connectTimer);
  sent.once('socket', (socket: Socket) => {
    if (!socket.connecting) connected();
    else socket.once('connect', connected);
  });
  sent.once('response', resolve);
  // This listener stays: a later error reaches the reader of the body, and must not end the process.
  sent.on('error', reject);
  sent.end();
  return promise.finally(() => {
    clearTimeout(headTimer);
    clearTimeout(connectTimer);
  });
}

function makePool(proxyEnv?: Record<string, string>): Pool {
  const options = { keepAlive: true, timeout: IDLE_TIMEOUT_MS, maxFreeSockets: 16 };
  const proxied = proxyEnv === undefined ? options : { ...options, proxyEnv };
  return { http: new http.Agent(proxied), https: new https.Agent(proxied) };
}

/** Discards an answer whose body is not needed. */
export function discard(answer: http.IncomingMessage): void {
  const timer = setTimeout(() => answer.destroy(), DISCARD_TIMEOUT_MS);
  let bytes = 0;
  answer.on('error', () => undefined);
  answer.on('close', () => clearTimeout(timer));
  answer.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_DISCARDED_BYTES) answer.destroy();
  });
}

const CERTIFICATE_CODES =
  /^(?:CERT_|UNABLE_TO_|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|ERR_TLS_CERT|HOSTNAME_MISMATCH|INVALID_CA)/u;

/** Translates the error of a failed connection, or of one that breaks while a body is read. */
export function toFault(error: unknown, url: URL): RegistryFault {
  if (error instanceof RegistryFault) return error;
  const code = error instanceof Error ? ((error as NodeJS.ErrnoException).code ?? '') : '';
  if (CERTIFICATE_CODES.test(code)) return new RegistryFault('certificate', url.host, { cause: error });
  if (
    code === 'ERR_SSL_WRONG_VERSION_NUMBER' ||
    code === 'ERR_SSL_PACKET_LENGTH_TOO_LONG' ||
    code === 'EPROTO'
  ) {
    return new RegistryFault('plain-http', url.host, { cause: error });
  }
  if (code.startsWith('HPE_') || code.startsWith('ERR_HTTP')) {
    return new RegistryFault('not-a-registry', url.host, { cause: error });
  }
  const isPassing = code === 'ECONNRESET' || code === 'EPIPE';
  return new RegistryFault('connect', url.host, { cause: error, isPassing });
}
