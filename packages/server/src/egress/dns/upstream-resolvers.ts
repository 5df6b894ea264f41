/**
 * The resolvers that guests' questions go to: those of the configuration, else those the host itself uses. That
 * one of them is a loopback or private address is the host's own choice and fine; guests never reach it directly.
 */
import { AppError } from '@coppice/contract';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import type { Logger } from 'pino';

const DNS_PORT = 53;
/** A laptop changes its network now and then; this is how long an old list may be used. */
const MAX_AGE_MS = 5000;
/** glibc reads three; more would only lengthen the wait of a guest whose name no resolver knows. */
const MAX_RESOLVERS = 3;
/** systemd-resolved's stub; it names the true ones in a file of its own. */
const STUB_ADDRESSES: ReadonlySet<string> = new Set(['127.0.0.53', '127.0.0.54']);

export interface UpstreamResolver {
  address: string;
  port: number;
}

/** Parses `1.2.3.4`, `1.2.3.4:5353`, `fd00::1` or `[fd00::1]:5353`. */
export function parseResolver(text: string): UpstreamResolver {
  if (isIP(text) !== 0) return { address: text, port: DNS_PORT };
  const groups = /^(?:\[(?<v6>[^\]]+)\]|(?<v4>[^:]+)):(?<port>\d{1,5})$/u.exec(text)?.groups;
  const address = groups?.['v6'] ?? groups?.['v4'] ?? '';
  const port = Number(groups?.['port']);
  if (isIP(address) === 0 || !(port >= 1 && port <= 65_535)) {
    throw new AppError(
      'invalid_request',
      `upstreamResolvers: "${text}" is no resolver; write 192.0.2.1 or [2001:db8::1]:53`,
    );
  }
  return { address, port };
}

/** The addresses of the `nameserver` lines; others, and lines that hold no address, are passed over. */
export function parseResolvConf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => /^\s*nameserver\s+(\S+)/u.exec(line)?.[1])
    .filter((address): address is string => address !== undefined && isIP(address) !== 0);
}

export interface UpstreamResolversOptions {
  configured: readonly string[] | undefined;
  /** Addresses that are our own forwarder: asking them would ask ourselves. */
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
