/**
 * Whoever may create a sandbox names registries: without a check the service would knock at any address of the operator's
 * network. Registries on private addresses are asked only if the operator has named them in the configuration.
 */
import { lookup } from 'node:dns/promises';
import { BlockList, isIP } from 'node:net';
import { AppError } from '@coppice/contract';
import { DeadlineError, withDeadline } from '../../lib/deadline.ts';

const LOOKUP_TIMEOUT_MS = 10_000;
const PROXIED_LOOKUP_TIMEOUT_MS = 2_000;

const NOT_PUBLIC_V4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/3',
];
const NOT_PUBLIC_V6 = [
  '::/96',
  '64:ff9b::/96',
  '64:ff9b:1::/48',
  '2002::/16',
  'fc00::/7',
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
];

export interface RegistryGuardOptions {
  /** Registries the operator named, with a mirror or as insecure. */
  configured: Iterable<string>;
  /**
   * Whether registries are reached through a proxy: it looks names up, this machine may not even be able to. A name that
   * this machine does know is checked all the same, as the proxy may not be used for it.
   */
  isProxied?: boolean;
  /** All addresses of a host name. */
  resolve?: (host: string) => Promise<string[]>;
}

export class RegistryGuard {
  readonly #configured: ReadonlySet<string>;
  readonly #isProxied: boolean;
  readonly #resolve: (host: string) => Promise<string[]>;
  readonly #notPublic = buildBlockList();

  constructor(options: RegistryGuardOptions) {
    this.#configured = new Set(options.configured);
    this.#isProxied = options.isProxied ?? false;
    this.#resolve = options.resolve ?? lookupAddresses;
  }

  /**
   * Throws `registry_unavailable` for a registry on a private address that is not configured. A name that changes its address
   * between this and the connection gets through: a firewall is the cure for that.
   */
  async check(registry: string): Promise<void> {
    if (this.#configured.has(registry)) return;
    const host = registry.replace(/:\d+$/u, '').replace(/^\[(.*)\]$/u, '$1');
    const isName = isIP(host) === 0;
    const addresses = isName ? await this.#lookup(registry, host) : [host];
    if (!addresses.some((address) => this.#isPrivate(address))) return;
    throw new AppError(
      'registry_unavailable',
      `the registry ${registry} is on a private address and is not asked; the operator must name it as a mirror or insecure registry first`,
    );
  }

  #isPrivate(address: string): boolean {
    return this.#notPublic.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
  }

  async #lookup(registry: string, host: string): Promise<string[]> {
    try {
      const timeoutMs = this.#isProxied ? PROXIED_LOOKUP_TIMEOUT_MS : LOOKUP_TIMEOUT_MS;
      return await withDeadline(`look-up of ${host}`, timeoutMs, this.#resolve(host));
    } catch (error) {
      if (this.#isProxied) return [];
      const what = error instanceof DeadlineError ? 'was not resolved in time' : 'cannot be resolved';
      throw new AppError('registry_unavailable', `the name of the registry ${registry} ${what}`, {
        cause: error,
      });
    }
  }
}

async function lookupAddresses(host: string): Promise<string[]> {
  const found = await lookup(host, { all: true });
  return found.map(({ address }) => address);
}

function buildBlockList(): BlockList {
  const list = new BlockList();
  const add = (ranges: readonly string[], family: 'ipv4' | 'ipv6') => {
    for (const range of ranges) {
      const [network = '', bits = ''] = range.split('/');
      list.addSubnet(network, Number(bits), family);
    }
  };
  add(NOT_PUBLIC_V4, 'ipv4');
  add(NOT_PUBLIC_V6, 'ipv6');
  return list;
}
