/**
 * Resolves the address of the service. The first of these that is set is used:
 *
 *   baseUrl ─► SANDBOX_BASE_URL ─► baseUrlTemplate ─► SANDBOX_BASE_URL_TEMPLATE ─► {@link DEFAULT_BASE_URL}
 *                                  └── with the region of the key ──┘
 *
 * If none is set, the key stays on this machine: a forgotten setting never sends it to a public host.
 */
import { readEnvironment } from './environment.ts';

/** Default address: a service on this machine with the default `COPPICE_LISTEN`. */
export const DEFAULT_BASE_URL = 'http://127.0.0.1:8080';

const REGION_PLACEHOLDER = '{region}';

/** The options of the client that decide its base URL. */
export interface BaseUrlOptions {
  baseUrl?: string | undefined;
  baseUrlTemplate?: string | undefined;
  allowPlainHttp?: boolean | undefined;
}

/** The text of a setting, and the option or environment variable that it comes from. */
interface Setting {
  name: string;
  text: string;
}

/**
 * Returns the base URL without a trailing slash. Throws `TypeError` with the name of the invalid option or variable;
 * the message never includes the key.
 */
export function resolveBaseUrl(options: BaseUrlOptions, apiKey: string): string {
  const setting =
    findSetting('baseUrl', options.baseUrl, 'SANDBOX_BASE_URL') ?? findOfRegion(options, apiKey);
  if (setting === undefined) return DEFAULT_BASE_URL;
  const url = parseBaseUrl(setting);
  if (url.protocol === 'http:' && !isLoopback(url.hostname) && !allowsPlainHttp(options)) {
    throw new TypeError(
      `${setting.name}: ${url.origin} is plain HTTP, so every host on the way could read the API key; ` +
        'use https, or set allowPlainHttp or SANDBOX_ALLOW_PLAIN_HTTP=true in a network that is otherwise encrypted',
    );
  }
  return `${url.origin}${url.pathname}`.replace(/\/+$/, '');
}

/** Returns the option, else the environment variable. An empty text counts as not set. */
function findSetting(option: string, given: string | undefined, variable: string): Setting | undefined {
  if (given !== undefined && given !== '') return { name: option, text: given };
  const text = readEnvironment(variable);
  return text === undefined || text === '' ? undefined : { name: variable, text };
}

function findOfRegion({ baseUrlTemplate }: BaseUrlOptions, apiKey: string): Setting | undefined {
  const template = findSetting('baseUrlTemplate', baseUrlTemplate, 'SANDBOX_BASE_URL_TEMPLATE');
  if (template === undefined) return undefined;
  const { name, text } = template;
  if (!text.includes(REGION_PLACEHOLDER)) {
    throw new TypeError(
      `${name} must hold ${REGION_PLACEHOLDER}, for example https://${REGION_PLACEHOLDER}.api.example.com`,
    );
  }
  const region = /^cop_live_([a-z0-9-]+)_[A-Za-z0-9]+$/.exec(apiKey)?.[1];
  if (region === undefined) {
    throw new TypeError(
      `apiKey is not of the form cop_live_<region>_<rest>, so it names no region for ${name}: ` +
        'pass baseUrl or set SANDBOX_BASE_URL',
    );
  }
  return { name, text: text.replaceAll(REGION_PLACEHOLDER, region) };
}

function parseBaseUrl({ name, text }: Setting): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new TypeError(`${name} must be an http or https address such as ${DEFAULT_BASE_URL}, not ${text}`);
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    throw new TypeError(`${name} must not contain a user, a password, a query or a fragment`);
  }
  return url;
}

/** Expects `hostname` in the form of the URL parser: an IPv4 address in decimal, an IPv6 address in brackets. */
function isLoopback(hostname: string): boolean {
  return /^(?:localhost|.+\.localhost|127(?:\.\d{1,3}){3}|\[::1\])$/.test(hostname);
}

function allowsPlainHttp({ allowPlainHttp }: BaseUrlOptions): boolean {
  return allowPlainHttp ?? readEnvironment('SANDBOX_ALLOW_PLAIN_HTTP') === 'true';
}
