/**
 * The endpoints of registries: the registry itself, or the mirror that the operator set in its place. And which
 * credentials they get.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { AppError } from '@coppice/contract';
import type { RegistryCredentials } from '../../../lib/protocol/runner-protocol.ts';

export interface RegistrySettings {
  /**
   * Maps a registry host to the base URL that replaces it, `{"docker.io": "http://127.0.0.1:5000"}`. Nothing falls back
   * to the original registry: an image that a company's mirror does not offer is not fetched around the mirror. A path
   * in the URL is prefixed to the names of repositories.
   */
  mirrors: Readonly<Record<string, string>>;
  /** `host:port` of registries that speak plain HTTP or have an untrusted certificate. */
  insecureRegistries: readonly string[];
}

export interface Endpoint {
  /** `https://registry-1.docker.io` */
  origin: string;
  /** Prefix of every repository: empty, or such as `hub/`. */
  repositoryPrefix: string;
  /** Whether the operator named the endpoint; if so, it may be on a private address. */
  isConfigured: boolean;
  /** Whether the credentials for the registry may be sent here; a mirror is another party. */
  takesCredentials: boolean;
}

/** Key of this process only: fingerprints tell accesses apart without holding a secret. */
const FINGERPRINT_KEY = randomBytes(32);
const HOST = /^[a-zA-Z0-9.:[\]-]{1,255}$/u;
const PREFIX = /^[a-z0-9._/-]{0,255}$/u;
/** Docker Hub's name in references is not the name of its registry. */
const HUB = 'docker.io';
const HUB_HOST = 'registry-1.docker.io';

export class RegistryEndpoints {
  readonly #mirrors = new Map<string, Endpoint>();
  readonly #insecure: ReadonlySet<string>;
  /** `host:port` of all parties that the operator named, and of those whose certificates are not checked. */
  readonly #configured = new Set<string>();
  readonly #unchecked = new Set<string>();

  /** Throws `invalid_request` on a setting that cannot be used. */
  constructor(settings: RegistrySettings) {
    this.#insecure = new Set(settings.insecureRegistries);
    for (const registry of this.#insecure) {
      checkHost('insecureRegistries', registry);
      for (const scheme of ['https', 'http']) {
        this.#unchecked.add(formatParty(new URL(`${scheme}://${canonicalHost(registry)}`)));
      }
    }
    for (const party of this.#unchecked) this.#configured.add(party);
    for (const [registry, text] of Object.entries(settings.mirrors)) {
      checkHost('mirrors', registry);
      const url = parseMirror(registry, text);
      this.#configured.add(formatParty(url));
      this.#mirrors.set(registry, this.#describeMirror(registry, url));
    }
  }

  /** Returns the endpoints of a registry, HTTPS first: a registry configured as insecure may still speak HTTPS. */
  find(registry: string): readonly [Endpoint, ...Endpoint[]] {
    const mirror = this.#mirrors.get(registry);
    if (mirror !== undefined) return [mirror];
    const host = canonicalHost(registry);
    const isConfigured = this.#insecure.has(registry);
    const secure: Endpoint = {
      origin: new URL(`https://${host}`).origin,
      repositoryPrefix: '',
      isConfigured,
      takesCredentials: true,
    };
    return isConfigured ? [secure, { ...secure, origin: new URL(`http://${host}`).origin }] : [secure];
  }

  /** Returns the credentials that are sent: those for a registry are ignored if a mirror is in its place. */
  credentialsFor(
    registry: string,
    credentials: RegistryCredentials | undefined,
  ): RegistryCredentials | undefined {
    return this.find(registry)[0].takesCredentials ? credentials : undefined;
  }

  /** Identifies an access: the registry sees equal identities as one. */
  identify(registry: string, credentials: RegistryCredentials | undefined): string {
    return fingerprint(this.credentialsFor(registry, credentials));
  }

  /** Whether the operator named the host and port of this URL. */
  isConfigured(url: URL): boolean {
    return this.#configured.has(formatParty(url));
  }

  /** Replaces the host of the operator's mirror in a text: untrusted callers must not see it. */
  hideMirror(registry: string, text: string): string {
    const mirror = this.#mirrors.get(registry);
    return mirror === undefined ? text : text.replaceAll(new URL(mirror.origin).host, 'its mirror');
  }

  /** Whether the operator disabled the certificate check for this host and port. */
  isUnchecked(url: URL): boolean {
    return this.#unchecked.has(formatParty(url));
  }

  #describeMirror(registry: string, url: URL): Endpoint {
    const path = url.pathname.replaceAll(/^\/+|\/+$/gu, '');
    return {
      origin: url.origin,
      repositoryPrefix: path === '' ? '' : `${path}/`,
      isConfigured: true,
      takesCredentials: url.host === new URL(`${url.protocol}//${canonicalHost(registry)}`).host,
    };
  }
}

export function fingerprint(credentials: RegistryCredentials | undefined): string {
  if (credentials === undefined) return 'anonymous';
  const text = JSON.stringify([credentials.username, credentials.password]);
  return createHmac('sha256', FINGERPRINT_KEY).update(text).digest('hex');
}

/** Returns host and port, with the port always included. */
function formatParty(url: URL): string {
  const defaultPort = url.protocol === 'https:' ? '443' : '80';
  return `${url.hostname}:${url.port === '' ? defaultPort : url.port}`;
}

function canonicalHost(registry: string): string {
  return registry === HUB ? HUB_HOST : registry;
}

function parseMirror(registry: string, text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isHttp = url?.protocol === 'http:' || url?.protocol === 'https:';
  const path = url?.pathname.replace(/^\/+/u, '') ?? '';
  if (url === undefined || !isHttp || !PREFIX.test(path) || url.search !== '' || url.hash !== '') {
    throw new AppError(
      'invalid_request',
      `mirrors: ${JSON.stringify(text)} for ${registry} must be a base URL such as "http://127.0.0.1:5000"`,
    );
  }
  if (url.username === '' && url.password === '') return url;
  throw new AppError(
    'invalid_request',
    `mirrors: the URL for ${registry} must not hold credentials; mirrors are used without credentials`,
  );
}

function checkHost(setting: string, registry: string): void {
  if (HOST.test(registry) && URL.canParse(`https://${registry}`)) return;
  throw new AppError(
    'invalid_request',
    `${setting}: ${JSON.stringify(registry)} is no registry host, "host" or "host:port"`,
  );
}
