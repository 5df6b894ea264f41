/**
 * Speaks the OCI distribution protocol, as far as pulling needs it: manifests and blobs.
 *
 *   RegistryClient ─► Authorizer (challenges, tokens) ─► RedirectFollower ─► Dialer (deadlines) ─► DialGuard (addresses)
 *
 * Every error is an `AppError` in words for the caller; its cause is for the log and holds no secret.
 */
import type { ImageReference } from '@coppice/contract';
import type { RegistryCredentials } from '../../../lib/protocol/runner-protocol.ts';
import { Slots } from '../../../lib/waiting/slots.ts';
import { checkStatus } from './answer-check.ts';
import { Authorizer, fingerprint } from './authorizer.ts';
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

/** One who asks for one image. */
export interface ImageAsk {
  reference: ImageReference;
  /** Shown in errors. */
  name: string;
  credentials: RegistryCredentials | undefined;
}

export interface RegistryClientOptions extends RegistrySettings {
  /** Where proxy settings are read from. */
  environment: NodeJS.ProcessEnv;
  /** Of authorities that the operator trusts. */
  certificatesPath: string;
  limits?: Partial<TransferLimits>;
  resolveHost?: ResolveHost;
}

interface Call {
  method: 'GET' | 'HEAD';
  /** After the repository: `manifests/1`. */
  path: string;
  headers: Readonly<Record<string, string>>;
  signal: AbortSignal;
}

const MAX_WAITING_BLOBS = 4096;
const DIGEST = /^sha256:[0-9a-f]{64}$/u;

export class RegistryClient {
  readonly #endpoints: RegistryEndpoints;
  readonly #limits: TransferLimits;
  readonly #dialer: Dialer;
  readonly #follower: RedirectFollower;
  readonly #authorizer: Authorizer;
  /** How an insecure registry was reached last. */
  readonly #chosen = new Map<string, Endpoint>();
  readonly #slots = new Map<string, Slots>();

  constructor(options: RegistryClientOptions) {
    this.#limits = { ...DEFAULT_TRANSFER_LIMITS, ...options.limits };
    this.#endpoints = new RegistryEndpoints(options);
    this.#dialer = new Dialer({
      guard: new DialGuard(options.resolveHost),
      proxy: readProxySettings(options.environment),
      trust: readTrust(options.certificatesPath),
      limits: this.#limits,
    });
    this.#follower = new RedirectFollower({
      dialer: this.#dialer,
      endpoints: this.#endpoints,
      maxRedirects: this.#limits.maxRedirects,
    });
    this.#authorizer = new Authorizer(this.#follower, this.#limits);
  }

  /** Whose access `ask` is: two with equal answers are one to the registry. Credentials that are sent nowhere make no difference. */
  identify(ask: ImageAsk): string {
    return fingerprint(this.#credentialsOf(ask));
  }

  /** The digest that the registry says the tag or digest has; undefined if it does not say it. Costs no pull where pulls are counted. */
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

  /** The manifest byte for byte, so that its digest can be taken. */
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

  /** Verified at its end: what was read is good only if the generator ends without an error. */
  async *readBlob(ask: ImageAsk, blob: Blob, signal: AbortSignal): AsyncGenerator<Buffer> {
    const release = await this.#slotsOf(ask.reference.registry).acquire(signal);
    try {
      yield* readBlob(blob, {
        request: (headers) =>
          this.#authorized(ask, { method: 'GET', path: `blobs/${blob.digest}`, headers, signal }),
        limits: this.#limits,
        hasCredentials: this.#credentialsOf(ask) !== undefined,
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

  #credentialsOf({ reference, credentials }: ImageAsk): RegistryCredentials | undefined {
    const [endpoint] = this.#endpoints.find(reference.registry);
    return endpoint.takesCredentials ? credentials : undefined;
  }

  #slotsOf(registry: string): Slots {
    const found = this.#slots.get(registry);
    if (found !== undefined) return found;
    // As many as there are registries with a pull under way, and few more.
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
    const detail = this.#endpoints.hideMirror(registry, error.detail);
    return describeFault(error, { image: ask.name, registry, detail });
  }

  /** Tries again what passes. */
  async #call(ask: ImageAsk, call: Call): Promise<Answer> {
    const { maxManifestTries } = this.#limits;
    try {
      for (let tries = 1; ; tries++) {
        try {
          const answer = await this.#authorized(ask, call);
          checkStatus(answer, [200], this.#credentialsOf(ask) !== undefined);
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
    const [first, ...others] = this.#endpoints.find(registry);
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
    const credentials = this.#credentialsOf(ask);
    const request = {
      ...call,
      url: new URL(`/v2/${repository}/${call.path}`, endpoint.origin),
      endpoint,
    };
    const authorizationAsk = { endpoint, repository, credentials };
    const known = this.#authorizer.find(authorizationAsk);
    const answer = await this.#follower.request(withAuthorization(request, known));
    // A 401 of a party that a redirect led to is no challenge of the registry's.
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

/** A port for HTTPS may also be closed, or behind a firewall that drops. */
function speaksNoTls(error: unknown): boolean {
  return error instanceof RegistryFault && ['plain-http', 'connect', 'slow'].includes(error.kind);
}

function withAuthorization<T extends object>(request: T, authorization: string | undefined) {
  return authorization === undefined ? request : { ...request, authorization };
}
