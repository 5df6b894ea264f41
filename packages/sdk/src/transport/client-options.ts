import { resolveBaseUrl } from './base-url.ts';
import { readEnvironment } from './environment.ts';
import type { WebSocketConstructor } from '../streams/web-socket.ts';

/** The part of `fetch` that the client uses. A test or a proxy can replace it. */
export type FetchFunction = (url: string, init: RequestInit) => Promise<Response>;

/** Options of the client. All are optional when the environment variable `SANDBOX_API_KEY` is set. */
export interface ClientOptions {
  /** API key, `cop_live_<region>_<rest>`. Default: the environment variable `SANDBOX_API_KEY`. */
  apiKey?: string | undefined;
  /**
   * Address of the service, for example `https://sandboxes.example.com`. Default: `SANDBOX_BASE_URL`, else
   * `baseUrlTemplate`, else {@link DEFAULT_BASE_URL}.
   */
  baseUrl?: string | undefined;
  /**
   * Address of the service in the region of the key, for example `https://{region}.api.example.com`. It is used only
   * when neither `baseUrl` nor `SANDBOX_BASE_URL` is set. Default: `SANDBOX_BASE_URL_TEMPLATE`.
   */
  baseUrlTemplate?: string | undefined;
  /**
   * If true, the client also sends the key over plain HTTP to hosts other than this machine. Use it only in networks
   * that are encrypted below HTTP, such as a VPN. Default: true if `SANDBOX_ALLOW_PLAIN_HTTP` is `true`.
   */
  allowPlainHttp?: boolean | undefined;
  /** Replaces the global `fetch`. */
  fetch?: FetchFunction | undefined;
  /** Replaces the global `WebSocket`. Default: the global one, else that of the package `ws` if it is installed. */
  WebSocket?: WebSocketConstructor | undefined;
  /** Maximum time in milliseconds for a call, or for a transfer without progress; at least 1. Default 60 000. */
  timeoutMs?: number | undefined;
  /** Maximum number of retries of a request that is safe to repeat. Default 3; 0 turns retries off. */
  maxRetries?: number | undefined;
}

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call, which then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Default of `timeoutMs`, in milliseconds. */
const DEFAULT_TIMEOUT_MS = 60_000;
/** Default of `maxRetries`. */
const DEFAULT_MAX_RETRIES = 3;

/** Validated options, with defaults filled in. */
export interface ResolvedClientOptions {
  apiKey: string;
  /** Base URL without a trailing slash. */
  baseUrl: string;
  fetch: FetchFunction;
  /** Undefined if the option was left out: the client then looks for a class when it opens the first WebSocket. */
  WebSocket: WebSocketConstructor | undefined;
  timeoutMs: number;
  maxRetries: number;
}

/**
 * Validates the options and fills in defaults. Throws `TypeError` with the name of the missing or invalid option or
 * variable; the message never includes the key.
 */
export function resolveClientOptions(options: ClientOptions): ResolvedClientOptions {
  const apiKey = resolveApiKey(options.apiKey);
  return {
    apiKey,
    baseUrl: resolveBaseUrl(options, apiKey),
    // The global is looked up at each call: `fetch` must not lose its `this`, and a patched global must be used.
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
  // The key is checked here because fetch would include it in the message of its own error.
  if (typeof apiKey !== 'string' || !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new TypeError('apiKey contains spaces, line breaks or characters other than ASCII; copy it again');
  }
  return apiKey;
}

function requireRange(name: string, value: number, minimum: number): number {
  if (Number.isFinite(value) && value >= minimum) return value;
  throw new TypeError(`${name} must be a number of at least ${minimum}`);
}
