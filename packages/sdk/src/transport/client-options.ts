import { resolveBaseUrl } from './base-url.ts';
import { readEnvironment } from './environment.ts';
import type { WebSocketConstructor } from '../streams/web-socket.ts';

/** The part of `fetch` that the client uses, so that a test or a proxy can stand in for it. */
export type FetchFunction = (url: string, init: RequestInit) => Promise<Response>;

/** How to reach the service. Everything may be left out when `SANDBOX_API_KEY` is set. */
export interface ClientOptions {
  /** API key, `cop_live_<region>_<rest>`. Default: the environment variable `SANDBOX_API_KEY`. */
  apiKey?: string | undefined;
  /**
   * Address of the service, for example `https://sandboxes.example.com`. Default: `SANDBOX_BASE_URL`, else
   * `baseUrlTemplate`, else {@link DEFAULT_BASE_URL}.
   */
  baseUrl?: string | undefined;
  /**
   * Address of the service in the region of the key, for example `https://{region}.api.example.com`. It counts only
   * when neither `baseUrl` nor `SANDBOX_BASE_URL` is set. Default: `SANDBOX_BASE_URL_TEMPLATE`.
   */
  baseUrlTemplate?: string | undefined;
  /**
   * Sends the key over plain HTTP to hosts other than this machine, too. For networks that are encrypted below HTTP,
   * such as a VPN. Default: whether `SANDBOX_ALLOW_PLAIN_HTTP` is `true`.
   */
  allowPlainHttp?: boolean | undefined;
  /** Stands in for the global `fetch`. */
  fetch?: FetchFunction | undefined;
  /** Stands in for the global `WebSocket`; where there is none, the package `ws` is used if it is installed. */
  WebSocket?: WebSocketConstructor | undefined;
  /** How long a call may take, or a transfer may stand still, in milliseconds. Default 60 000. */
  timeoutMs?: number | undefined;
  /** How often a request that is safe to repeat is tried again. Default 3; 0 turns retries off. */
  maxRetries?: number | undefined;
}

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call; it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export const DEFAULT_TIMEOUT_MS = 60_000;
export const DEFAULT_MAX_RETRIES = 3;

export interface ResolvedClientOptions {
  apiKey: string;
  /** Without a slash at its end. */
  baseUrl: string;
  fetch: FetchFunction;
  /** Undefined: looked for when the first one is opened. */
  WebSocket: WebSocketConstructor | undefined;
  timeoutMs: number;
  maxRetries: number;
}

/** Throws `TypeError` naming the option or variable that is missing or unusable; never shows the key. */
export function resolveClientOptions(options: ClientOptions): ResolvedClientOptions {
  const apiKey = resolveApiKey(options.apiKey);
  return {
    apiKey,
    baseUrl: resolveBaseUrl(options, apiKey),
    // Looked up at each call: `fetch` must not lose its `this`, and a patched global is honoured.
    fetch: options.fetch ?? ((url, init) => globalThis.fetch(url, init)),
    WebSocket: options.WebSocket,
    timeoutMs: requireRange('timeoutMs', options.timeoutMs ?? DEFAULT_TIMEOUT_MS, 1),
    maxRetries: requireRange('maxRetries', options.maxRetries ?? DEFAULT_MAX_RETRIES, 0),
  };
}

function resolveApiKey(option: string | undefined): string {
  const apiKey = option ?? readEnvironment('SANDBOX_API_KEY');
  if (apiKey === undefined || apiKey === '') {
    throw new TypeError('no API key: pass apiKey or set the environment variable SANDBOX_API_KEY');
  }
  // Checked here because fetch would put the key into the text of its own error.
  if (typeof apiKey !== 'string' || !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new TypeError('apiKey holds spaces, line breaks or characters other than ASCII; copy it again');
  }
  return apiKey;
}

function requireRange(name: string, value: number, minimum: number): number {
  if (Number.isFinite(value) && value >= minimum) return value;
  throw new TypeError(`${name} must be a number of at least ${minimum}`);
}
