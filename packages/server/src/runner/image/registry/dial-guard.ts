/**
 * Whoever may create a sandbox names registries: without a check the service would knock at any address of the operator's
 * network. Each name is resolved here, all of its addresses are checked, and exactly those are dialled: a name that changes its
 * address in between gains nothing. Who the operator named in the configuration may be on a private address.
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

/** All addresses of a host name. */
export type ResolveHost = (host: string) => Promise<LookupAddress[]>;

export class DialGuard {
  readonly #resolve: ResolveHost;

  constructor(resolve: ResolveHost = (host) => lookup(host, { all: true })) {
    this.#resolve = resolve;
  }

  /** Addresses need no look-up, and a connection to one would never ask {@link lookupFor}. */
  checkLiteral(url: URL, mayBePrivate: boolean): void {
    const host = url.hostname.replaceAll(/[[\]]/gu, '');
    if (!mayBePrivate && isIP(host) !== 0 && isPrivateAddress(host)) throw privateFault(url.host);
  }

  /** The look-up of a connection to `url`. */
  lookupFor(url: URL, mayBePrivate: boolean): LookupFunction {
    return (host, options, done) => {
      void this.#answer(url, mayBePrivate, { host, options, done });
    };
  }

  /** A proxy looks names up, this machine may not even be able to. A name that it does know is checked all the same. */
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
