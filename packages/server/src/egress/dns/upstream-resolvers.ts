/**
 * Lists the resolvers for guests' questions: those of the configuration, else those that the host itself uses. A
 * loopback or private address among them is fine: it is the host's own choice, and guests never reach it directly.
 */
import { AppError } from '@coppice/contract';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import type { Logger } from 'pino';

const DNS_PORT = 53;
/** Maximum age of the list, because a laptop changes its network now and then. */
const MAX_AGE_MS = 5000;
/** glibc reads three. More would only lengthen the wait for a name that no resolver knows. */
const MAX_RESOLVERS = 3;
/** The stub of systemd-resolved, which lists the real resolvers in another file. */
const STUB_ADDRESSES: ReadonlySet<string> = new Set(['127.0.0.53', '127.0.0.54']);

export interface UpstreamResolver {
  address: string;
  port: number;
}

/** Parses `1.2.3.4`, `1.2.3.4:5353`, `fd00::1` or `[fd00::1]:5353`. Throws `invalid_request` for another text. */
export function parseResolver(text: string): UpstreamResolver {
  if (isIP(text) !== 0) return { address: text, port: DNS_PORT };
  const groups = /^(?:\[(?<v6>[^\]]+)\]|(?<v4>[^:]+)):(?<port>\d{1,5})$/u.exec(text)?.groups;
  const address = groups?.['v6'] ?? groups?.['v4'] ?? '';
  const port = Number(groups?.['port']);
  if (isIP(address) === 0 || !(port >= 1 && port <= 65_535)) {
    throw new AppError(
      'invalid_request',
      `upstreamResolvers: "${text}" is not a resolver; write 192.0.2.1 or [2001:db8::1]:53`,
    );
  }
  return { address, port };
}

/** Returns the addresses of the `nameserver` lines. Other lines, and lines without an address, are ignored. */
export function parseResolvConf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => /^\s*nameserver\s+(\S+)/u.exec(line)?.[1])
    .filter((address): address is string => address !== undefined && isIP(address) !== 0);
}

export interface UpstreamResolversOptions {
  configured: readonly string[] | undefined;
  /** Addresses of this forwarder, which would forward questions to itself. */
  excluded: readonly string[];
  log: Logger;
  resolvConfPath?: string;
  systemdResolvConfPath?: string;
}

export class UpstreamResolvers {
  readonly #options: UpstreamResolversOptions;
  readonly #configured: UpstreamResolver[] | undefined;
  #known: { list: UpstreamResolver[]; readAtMs: number } | undefined;

  constructor(options: UpstreamResolversOptions) {
    this.#options = options;
    this.#configured = options.configured?.map(parseResolver);
  }

  async list(): Promise<readonly UpstreamResolver[]> {
    if (this.#configured !== undefined) return this.#configured;
    if (this.#known !== undefined && performance.now() - this.#known.readAtMs < MAX_AGE_MS)
      return this.#known.list;
    const list = await this.#readHosts();
    if (list.length === 0 && this.#known?.list.length !== 0) {
      this.#options.log.warn('the host has no DNS resolver in /etc/resolv.conf: guests cannot resolve names');
    }
    this.#known = { list, readAtMs: performance.now() };
    return list;
  }

  async #readHosts(): Promise<UpstreamResolver[]> {
    const { excluded, resolvConfPath = '/etc/resolv.conf' } = this.#options;
    const { systemdResolvConfPath = '/run/systemd/resolve/resolv.conf' } = this.#options;
    let addresses = await readNameservers(resolvConfPath);
    if (addresses.length > 0 && addresses.every((address) => STUB_ADDRESSES.has(address))) {
      const behindStub = await readNameservers(systemdResolvConfPath);
      if (behindStub.length > 0) addresses = behindStub;
    }
    const usable = addresses.filter((address) => !excluded.includes(address));
    return usable.slice(0, MAX_RESOLVERS).map((address) => ({ address, port: DNS_PORT }));
  }
}

async function readNameservers(path: string): Promise<string[]> {
  try {
    return parseResolvConf(await readFile(path, 'utf8'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
