/**
 * A client of the OCI distribution protocol, for pulls only: manifests and blobs.
 *
 *  RegistryClient ─► Authorizer (challenges, tokens) ─► RedirectFollower ─► Dialer (deadlines) ─► DialGuard (addresses)
 *
 * Every error is an `AppError` with a message for the caller; its cause is for the log and holds no secret.
 */
import type { ImageReference } from '@coppice/contract';
import type { RegistryCredentials } from '../../../lib/protocol/runner-protocol.ts';
import { Slots } from '../../../lib/waiting/slots.ts';
import { checkStatus } from './answer-check.ts';
import { Authorizer } from './authorizer.ts';
import { pause, readBlob, type Blob } from './blob-reader.ts';
import { readSmallBody } from './body.ts';
import { DialGuard, type ResolveHost } from './dial-guard.ts';
import { Dialer, discard } from './exchange.ts';
import { MANIFEST_TYPES, checkManifestType } from './media-types.ts';
import { readProxySettings } from './proxy.ts';
import { RedirectFollower, type Answer } from './redirects.ts';
import { describeFault } from './registry-failure.ts';
import { RegistryFault } from './registry-fault.ts';
import { RegistryEndpoints, type Endpoint, type RegistrySettings } from './registry-settings.ts';
import { DEFAULT_TRANSFER_LIMITS, type TransferLimits } from './transfer-limits.ts';
import { readTrust } from '../../../lib/tls/trust.ts';

/** A request for one image. */
export interface ImageAsk {
  reference: ImageReference;
  /** Name of the image in errors. */
  name: string;
  credentials: RegistryCredentials | undefined;
}

export interface RegistryClientOptions extends RegistrySettings {
  /** Environment variables with the proxy settings. */
  environment: NodeJS.ProcessEnv;
  /** File with the certificates of the authorities that the operator trusts. */
  certificatesPath: string;
  limits?: Partial<TransferLimits>;
  resolveHost?: ResolveHost;
}

interface Call {
  method: 'GET' | 'HEAD';
  /** Path after the repository: `manifests/1`. */
  path: string;
  headers: Readonly<Record<string, string>>;
  signal: AbortSignal;
}

const MAX_WAITING_BLOBS = 4096;
const DIGEST = /^sha256:[0-9a-f]{64}$/u;

export class RegistryClient {
  readonly endpoints: RegistryEndpoints;
  readonly #limits: TransferLimits;
  readonly #dialer: Dialer;
  readonly #follower: RedirectFollower;
  readonly #authorizer: Authorizer;
  /** The endpoint at which each insecure registry was last reached. */
  readonly #chosen = new Map<string, Endpoint>();
  readonly #slots = new Map<string, Slots>();

  constructor(options: RegistryClientOptions) {
    this.#limits = { ...DEFAULT_TRANSFER_LIMITS, ...options.limits };
    this.endpoints = new RegistryEndpoints(options);
    this.#dialer = new Dialer({
      guard: new DialGuard(options.resolveHost),
      proxy: readProxySettings(options.environment),
      trust: readTrust(options.certificatesPath),
      limits: this.#limits,
    });
    this.#follower = new RedirectFollower({
      dialer: this.#dialer,
      endpoints: this.endpoints,
      maxRedirects: this.#limits.maxRedirects,
    });
    this.#authorizer = new Authorizer(this.#follower, this.#limits);
  }

  /**
   * Returns the digest that the registry names for the tag or digest; undefined if it names none. Does not count as a
   * pull on registries that count pulls.
   */
  async findManifestDigest(
    ask: ImageAsk,
    tagOrDigest: string,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const { message } = await this.#call(ask, {
      method: 'HEAD',
      path: `manifests/${tagOrDigest}`,
      headers: { accept: MANIFEST_TYPES.join(', ') },
      signal,
    });
    discard(message);
    const digest = message.headers['docker-content-digest'];
    return typeof digest === 'string' && DIGEST.test(digest) ? digest : undefined;
  }

  /** Returns the manifest byte for byte, so that its digest can be computed. */
  async getManifest(
    ask: ImageAsk,
    tagOrDigest: string,
    options: { maxBytes: number; signal: AbortSignal },
  ): Promise<Buffer> {
    const { maxBytes, signal } = options;
    const { message, url } = await this.#call(ask, {
      method: 'GET',
      path: `manifests/${tagOrDigest}`,
      headers: { accept: MANIFEST_TYPES.join(', ') },
      signal,
    });
    try {
      checkManifestType(message.headers['content-type'], url.host);
      return await readSmallBody(message, maxBytes, { url, limits: this.#limits, signal });
    } catch (error) {
      message.destroy();
      throw this.#explain(ask, error, signal);
    }
  }

  /** Yields a blob and verifies it at its end: the data is valid only if the generator ends without an error. */
  async *readBlob(ask: ImageAsk, blob: Blob, signal: AbortSignal): AsyncGenerator<Buffer> {
    const release = await this.#slotsOf(ask.reference.registry).acquire(signal);
    try {
      yield* readBlob(blob, {
        request: (headers) =>
          this.#authorized(ask, { method: 'GET', path: `blobs/${blob.digest}`, headers, signal }),
        limits: this.#limits,
        hasCredentials: this.endpoints.credentialsFor(ask.reference.registry, ask.credentials) !== undefined,
        signal,
      });
    } catch (error) {
      throw this.#explain(ask, error, signal);
    } finally {
      release();
    }
  }

  close(): void {
    this.#dialer.close();
  }

  #slotsOf(registry: string): Slots {
    const found = this.#slots.get(registry);
    if (found !== undefined) return found;
    // The map grows with each registry name that callers use, so it is cleared at a limit.
    if (this.#slots.size > MAX_WAITING_BLOBS) this.#slots.clear();
    const made = new Slots('downloads', {
      maxRunning: this.#limits.maxConcurrentBlobs,
      maxWaiting: MAX_WAITING_BLOBS,
    });
    this.#slots.set(registry, made);
    return made;
  }

  #explain(ask: ImageAsk, error: unknown, signal: AbortSignal): unknown {
    if (signal.aborted) return signal.reason;
    if (!(error instanceof RegistryFault)) return error;
    const { registry } = ask.reference;
    const detail = this.endpoints.hideMirror(registry, error.detail);
    return describeFault(error, { image: ask.name, registry, detail });
  }

  /** Sends a request; retries temporary faults. */
  async #call(ask: ImageAsk, call: Call): Promise<Answer> {
    const { maxManifestTries } = this.#limits;
    try {
      for (let tries = 1; ; tries++) {
        try {
          const answer = await this.#authorized(ask, call);
          checkStatus(
            answer,
            [200],
            this.endpoints.credentialsFor(ask.reference.registry, ask.credentials) !== undefined,
          );
          return answer;
        } catch (error) {
          if (!(error instanceof RegistryFault && error.isPassing) || tries >= maxManifestTries) throw error;
          await pause(error, tries, this.#limits, call.signal);
        }
      }
    } catch (error) {
      throw this.#explain(ask, error, call.signal);
    }
  }

  async #authorized(ask: ImageAsk, call: Call): Promise<Answer> {
    const { registry } = ask.reference;
    const chosen = this.#chosen.get(registry);
    const [first, ...others] = this.endpoints.find(registry);
    if (chosen !== undefined) {
      return this.#callEndpoint(ask, call, chosen).catch((error: unknown) => {
        this.#chosen.delete(registry);
        throw error;
      });
    }
    let endpoint = first;
    for (const next of [...others, undefined]) {
      try {
        const answer = await this.#callEndpoint(ask, call, endpoint);
        if (others.length > 0) this.#chosen.set(registry, endpoint);
        return answer;
      } catch (error) {
        if (next === undefined || !speaksNoTls(error)) throw error;
        endpoint = next;
      }
    }
    throw new RegistryFault('connect', registry);
  }

  async #callEndpoint(ask: ImageAsk, call: Call, endpoint: Endpoint): Promise<Answer> {
    const repository = `${endpoint.repositoryPrefix}${ask.reference.repository}`;
    const credentials = this.endpoints.credentialsFor(ask.reference.registry, ask.credentials);
    const request = {
      ...call,
      url: new URL(`/v2/${repository}/${call.path}`, endpoint.origin),
      endpoint,
    };
    const authorizationAsk = { endpoint, repository, credentials };
    const known = this.#authorizer.find(authorizationAsk);
    const answer = await this.#follower.request(withAuthorization(request, known));
    // A 401 from the target of a redirect is not a challenge of the registry.
    if (answer.message.statusCode !== 401 || answer.url.origin !== request.url.origin) return answer;
    discard(answer.message);
    const challenge = answer.message.headers['www-authenticate'] ?? '';
    const authorization = await this.#authorizer.answer(authorizationAsk, challenge, known);
    if (authorization === undefined) return answer;
    const second = await this.#follower.request(withAuthorization(request, authorization));
    if (second.message.statusCode === 401 && authorization.startsWith('Basic ')) {
      discard(second.message);
      this.#authorizer.forget(authorizationAsk);
      throw new RegistryFault('credentials-refused', second.url.host);
    }
    return second;
  }
}

/** Whether an endpoint has no TLS. The HTTPS port may also be closed, or behind a firewall that drops packets. */
function speaksNoTls(error: unknown): boolean {
  return error instanceof RegistryFault && ['plain-http', 'connect', 'slow'].includes(error.kind);
}

function withAuthorization<T extends object>(request: T, authorization: string | undefined) {
  return authorization === undefined ? request : { ...request, authorization };
}
