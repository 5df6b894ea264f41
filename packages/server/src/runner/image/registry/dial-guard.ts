/**
 * Keeps the service from connecting to private addresses. Any caller that may create a sandbox can name a registry, and
 * without a check the service would connect to any address of the operator's network. The guard resolves each name,
 * checks all of its addresses, and the dialer connects only to those, so a name that changes its address in between
 * gains nothing. Parties that the operator named in the configuration may be on a private address.
 */
import type { LookupAddress, LookupOptions } from 'node:dns';
import { lookup } from 'node:dns/promises';
import { isIP, type LookupFunction } from 'node:net';
import { withDeadline } from '../../../lib/waiting/deadline.ts';
import { isPrivateAddress } from './address-policy.ts';
import { RegistryFault } from './registry-fault.ts';

const LOOKUP_TIMEOUT_MS = 10_000;
const PROXIED_LOOKUP_TIMEOUT_MS = 2_000;

type LookupDone = Parameters<LookupFunction>[2];

/** Resolves a host name to all of its addresses. */
export type ResolveHost = (host: string) => Promise<LookupAddress[]>;

export class DialGuard {
  readonly #resolve: ResolveHost;

  constructor(resolve: ResolveHost = (host) => lookup(host, { all: true })) {
    this.#resolve = resolve;
  }

  /** Checks a URL with a literal address: its connection needs no look-up and so never calls {@link lookupFor}. */
  checkLiteral(url: URL, mayBePrivate: boolean): void {
    const host = url.hostname.replaceAll(/[[\]]/gu, '');
    if (!mayBePrivate && isIP(host) !== 0 && isPrivateAddress(host)) throw privateFault(url.host);
  }

  /** Returns the look-up function for a connection to `url`. */
  lookupFor(url: URL, mayBePrivate: boolean): LookupFunction {
    return (host, options, done) => {
      void this.#answer(url, mayBePrivate, { host, options, done });
    };
  }

  /** Checks a URL behind a proxy, which resolves names itself. A name that this machine cannot resolve passes. */
  async checkProxied(url: URL): Promise<void> {
    this.checkLiteral(url, false);
    const found = await withDeadline(
      `look-up of ${url.hostname}`,
      PROXIED_LOOKUP_TIMEOUT_MS,
      this.#resolve(url.hostname),
    ).catch(() => []);
    if (found.some(({ address }) => isPrivateAddress(address))) throw privateFault(url.host);
  }

  async #answer(
    url: URL,
    mayBePrivate: boolean,
    { host, options, done }: { host: string; options: LookupOptions; done: LookupDone },
  ): Promise<void> {
    let found: LookupAddress[];
    try {
      found = await this.#lookup(url, host, mayBePrivate);
    } catch (error) {
      done(error as NodeJS.ErrnoException, '', 0);
      return;
    }
    const [first] = found;
    if (options.all === true) done(null, found);
    else done(null, first?.address ?? '', first?.family);
  }

  async #lookup(url: URL, host: string, mayBePrivate: boolean): Promise<LookupAddress[]> {
    const found = await withDeadline(`look-up of ${host}`, LOOKUP_TIMEOUT_MS, this.#resolve(host)).catch(
      (error: unknown) => {
        throw new RegistryFault('lookup', url.host, { cause: error });
      },
    );
    if (found.length === 0) throw new RegistryFault('lookup', url.host);
    if (!mayBePrivate && found.some(({ address }) => isPrivateAddress(address))) throw privateFault(url.host);
    return found;
  }
}

function privateFault(host: string): RegistryFault {
  return new RegistryFault('private', host);
}
