/**
 * Answers a registry's challenge: Basic, or a Bearer token from another server.
 *
 *   request ──401──► challenge ──► Basic: credentials to the registry
 *                              └─► Bearer: credentials to the realm ──► token, kept until it expires ──► registry
 *
 * The authorizer remembers the answer to a challenge, so that a registry refuses only the first request of a
 * repository. It keeps everything in memory only.
 */
import { z } from 'zod';
import type { RegistryCredentials } from '../../../lib/protocol/runner-protocol.ts';
import { SingleFlight } from '../../../lib/waiting/single-flight.ts';
import { describeStatus } from './answer-check.ts';
import { readSmallBody } from './body.ts';
import { parseChallenges, type Challenge } from './challenge.ts';
import { discard } from './exchange.ts';
import type { RedirectFollower } from './redirects.ts';
import { RegistryFault } from './registry-fault.ts';
import { fingerprint, type Endpoint } from './registry-settings.ts';
import type { TransferLimits } from './transfer-limits.ts';

export interface AuthorizationAsk {
  endpoint: Endpoint;
  /** With the endpoint's prefix. */
  repository: string;
  credentials: RegistryCredentials | undefined;
}

interface Authorization {
  header: string;
  /** On the monotonic clock. */
  expiresAtMs: number;
}

const MAX_KEPT = 1024;
/** Lifetime of a token that does not name one, by the protocol. */
const DEFAULT_LIFETIME_S = 60;
const MAX_LIFETIME_S = 3600;
/** Part of the lifetime that is used, so that a token does not expire in transit. */
const LIFETIME_USED = 0.8;

const TokenAnswer = z.object({
  token: z.string().max(32_768).optional(),
  access_token: z.string().max(32_768).optional(),
  expires_in: z.number().nullish(),
});

export class Authorizer {
  readonly #follower: RedirectFollower;
  readonly #limits: TransferLimits;
  readonly #kept = new Map<string, Authorization>();
  readonly #flights = new SingleFlight<string | undefined>();

  constructor(follower: RedirectFollower, limits: TransferLimits) {
    this.#follower = follower;
    this.#limits = limits;
  }

  /** Returns the header that answered an earlier challenge, if it is still valid. */
  find(ask: AuthorizationAsk): string | undefined {
    const kept = this.#kept.get(keyOf(ask));
    return kept !== undefined && kept.expiresAtMs > performance.now() ? kept.header : undefined;
  }

  /**
   * Answers the challenge of a 401 with a header. Returns undefined when there is no new answer: no credentials for
   * Basic. `refused` is the header that the registry rejected.
   */
  async answer(
    ask: AuthorizationAsk,
    header: string,
    refused: string | undefined,
  ): Promise<string | undefined> {
    const key = keyOf(ask);
    if (this.#kept.get(key)?.header === refused) this.#kept.delete(key);
    const found = this.find(ask);
    if (found !== undefined) return found;
    return this.#flights.run(key, async () => {
      const authorization = await this.#authorize(ask, parseChallenges(header)).catch(translateTimeout);
      if (authorization !== undefined) this.#keep(key, authorization);
      return authorization?.header;
    });
  }

  /** Forgets a header that was refused. */
  forget(ask: AuthorizationAsk): void {
    this.#kept.delete(keyOf(ask));
  }

  #keep(key: string, authorization: Authorization): void {
    this.#kept.delete(key);
    this.#kept.set(key, authorization);
    const oldest = this.#kept.keys().next();
    if (this.#kept.size > MAX_KEPT && !oldest.done) this.#kept.delete(oldest.value);
  }

  async #authorize(
    ask: AuthorizationAsk,
    challenges: readonly Challenge[],
  ): Promise<Authorization | undefined> {
    const bearer = challenges.find(({ scheme }) => scheme === 'bearer');
    if (bearer !== undefined) return this.#fetchToken(ask, bearer);
    if (!challenges.some(({ scheme }) => scheme === 'basic')) {
      const { host } = new URL(ask.endpoint.origin);
      throw new RegistryFault('challenge', `${host} asks for a kind of login that is not supported`);
    }
    if (ask.credentials === undefined) return undefined;
    return { header: basic(ask.credentials), expiresAtMs: Number.POSITIVE_INFINITY };
  }

  async #fetchToken(ask: AuthorizationAsk, { parameters }: Challenge): Promise<Authorization> {
    const { endpoint, credentials } = ask;
    // Not the signal of a caller: other callers wait for this token too.
    const signal = AbortSignal.timeout(this.#limits.headTimeoutMs);
    const url = parseRealm(endpoint, parameters.get('realm'));
    const service = parameters.get('service');
    if (service !== undefined) url.searchParams.set('service', service);
    // Always this repository, not the challenge's scope: a registry must not choose other repositories.
    url.searchParams.set('scope', `repository:${ask.repository}:pull`);
    const answer = await this.#follower.request({
      method: 'GET',
      url,
      headers: { accept: 'application/json' },
      ...(credentials === undefined ? {} : { authorization: basic(credentials) }),
      endpoint,
      signal,
    });
    const { message } = answer;
    if (message.statusCode !== 200) {
      discard(message);
      throw describeRefusal(describeStatus(message, answer.url, credentials !== undefined));
    }
    const { maxTokenBytes } = this.#limits;
    const body = await readSmallBody(message, maxTokenBytes, {
      url: answer.url,
      limits: this.#limits,
      signal,
    }).catch((error: unknown) => {
      throw error instanceof RegistryFault && error.kind === 'too-large' ? noToken(answer.url) : error;
    });
    return parseToken(body, answer.url);
  }
}

function keyOf({ endpoint, repository, credentials }: AuthorizationAsk): string {
  return `${fingerprint(credentials)} ${endpoint.origin} ${repository}`;
}

function basic({ username, password }: RegistryCredentials): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}

function translateTimeout(error: unknown): never {
  if (!(error instanceof DOMException && error.name === 'TimeoutError')) throw error;
  throw new RegistryFault('slow', 'the login server did not answer in time', { cause: error });
}

/** Checks the realm, an untrusted URL to send credentials to: plain HTTP only if the registry itself uses it. */
function parseRealm(endpoint: Endpoint, realm: string | undefined): URL {
  const { host, protocol } = new URL(endpoint.origin);
  const url = realm !== undefined && URL.canParse(realm) ? new URL(realm) : undefined;
  const isPlain = url?.protocol === 'http:' && protocol === 'http:';
  if (url !== undefined && (url.protocol === 'https:' || isPlain)) return url;
  throw new RegistryFault('challenge', `${host} names no login server with an https address`);
}

/** Translates a token server's answer: 401 and 403 mean unknown credentials, 404 cannot mean a missing image. */
function describeRefusal(fault: RegistryFault): RegistryFault {
  if (fault.kind === 'credentials-insufficient')
    return new RegistryFault('credentials-refused', fault.detail);
  if (fault.kind === 'not-found') {
    return new RegistryFault('challenge', `the server ${fault.detail} is not a login server`);
  }
  return fault;
}

function parseToken(body: Buffer, url: URL): Authorization {
  let json: unknown;
  try {
    json = JSON.parse(body.toString('utf8'));
  } catch {
    // The body may be anything, so it is not shown.
    json = undefined;
  }
  const parsed = TokenAnswer.safeParse(json);
  const token = parsed.data?.token ?? parsed.data?.access_token ?? '';
  if (!/^[\x21-\x7e]+$/u.test(token)) {
    throw noToken(url);
  }
  const lifetimeS = Math.min(parsed.data?.expires_in ?? DEFAULT_LIFETIME_S, MAX_LIFETIME_S);
  return {
    header: `Bearer ${token}`,
    expiresAtMs: performance.now() + Math.max(0, lifetimeS) * 1000 * LIFETIME_USED,
  };
}

function noToken(url: URL): RegistryFault {
  return new RegistryFault('challenge', `the login server ${url.host} gave no token`);
}
