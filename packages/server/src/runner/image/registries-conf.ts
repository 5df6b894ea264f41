import { AppError } from '@coppice/contract';

export interface RegistrySettings {
  /**
   * Registry host to the base URL that is asked in its place, `{"docker.io": "http://127.0.0.1:5000"}`. A mirror replaces its
   * registry: nothing falls back to the original, so that what a company's mirror does not offer is not fetched behind its back.
   */
  mirrors: Readonly<Record<string, string>>;
  /** `host:port` of registries that speak plain HTTP or have a certificate of their own. */
  insecureRegistries: readonly string[];
}

const HOST = /^[a-zA-Z0-9.:[\]-]{1,255}$/u;
const LOCATION = /^[a-zA-Z0-9.:[\]_/-]{1,512}$/u;

/** The containers-registries.conf (version 2) for skopeo. Throws `invalid_request` on a setting that cannot be used. */
export function buildRegistriesConf(settings: RegistrySettings): string {
  const mirrored = Object.entries(settings.mirrors).map(([registry, url]) => buildMirror(registry, url));
  const insecure = settings.insecureRegistries
    .filter((registry) => !Object.hasOwn(settings.mirrors, registry))
    .map((registry) => buildEntry(checkHost('insecureRegistries', registry), registry, true));
  return [
    'unqualified-search-registries = []',
    'short-name-mode = "disabled"',
    ...mirrored,
    ...insecure,
    '',
  ].join('\n');
}

function buildMirror(registry: string, baseUrl: string): string {
  checkHost('mirrors', registry);
  const url = URL.canParse(baseUrl) ? new URL(baseUrl) : undefined;
  const location = url === undefined ? '' : `${url.host}${url.pathname}`.replace(/\/+$/u, '');
  const isHttp = url?.protocol === 'http:';
  if ((!isHttp && url?.protocol !== 'https:') || !LOCATION.test(location)) {
    throw new AppError(
      'invalid_request',
      `mirrors: ${JSON.stringify(baseUrl)} for ${registry} must be a base URL such as "http://127.0.0.1:5000"`,
    );
  }
  return buildEntry(registry, location, isHttp);
}

function buildEntry(prefix: string, location: string, isInsecure: boolean): string {
  return [
    '',
    '[[registry]]',
    `prefix = "${prefix}"`,
    `location = "${location}"`,
    `insecure = ${isInsecure}`,
  ].join('\n');
}

function checkHost(setting: string, registry: string): string {
  if (HOST.test(registry)) return registry;
  throw new AppError(
    'invalid_request',
    `${setting}: ${JSON.stringify(registry)} is no registry host, "host" or "host:port"`,
  );
}
