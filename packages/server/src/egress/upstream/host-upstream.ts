import { isNameDenied, judgeResolved } from '@coppice/contract';
import { connect, type Socket } from 'node:net';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import type { GuestQuota } from '../dns/guest-quota.ts';
import type { FoundName, NameLookups } from '../dns/name-lookups.ts';
import type { Guest } from '../guest-table.ts';
import { UnreachableError, RefusedError, type Dialled, type DialTarget, type Upstream } from './upstream.ts';

/** Trying all resolvers, first by UDP and then by TCP, takes longer only when none of them works. */
const RESOLVE_TIMEOUT_MS = 10_000;
/** Timeout for one address. If the name has several, the next one is tried. */
const CONNECT_TIMEOUT_MS = 10_000;
const MAX_ADDRESSES_TRIED = 3;

/** For a guest that does not read, at most one chunk of 64 KiB and `highWaterMark` bytes wait. */
const SOCKET_OPTIONS = { family: 4, allowHalfOpen: true, noDelay: true, highWaterMark: 16 * 1024 };

export interface HostUpstreamOptions {
  lookups: NameLookups;
  quota: GuestQuota;
  connectTimeoutMs?: number;
}

/** Dials with sockets of this host, and resolves names with its resolvers. */
export class HostUpstream implements Upstream {
  readonly #options: HostUpstreamOptions;

  constructor(options: HostUpstreamOptions) {
    this.#options = options;
  }

  async resolveName(guest: Guest, name: string): Promise<string[]> {
    const { names, addresses } = await this.#lookUp(guest, name);
    if (names.some((alias) => isNameDenied(guest.policy, alias))) throw new RefusedError('denied_by_rule');
    if (addresses.length === 0) throw new UnreachableError(`${name} has no IPv4 address`);
    const verdicts = addresses.map((address) => ({
      address,
      verdict: judgeResolved(guest.policy, name, address),
    }));
    const allowed = verdicts.filter(({ verdict }) => verdict.action === 'allow');
    const [first] = verdicts;
    if (allowed.length === 0 && first?.verdict.action === 'deny')
      throw new RefusedError(first.verdict.reason, first.address);
    return allowed.map(({ address }) => address);
  }

  async dial(guest: Guest, target: DialTarget, signal?: AbortSignal): Promise<Dialled> {
    const candidates = await this.#listCandidates(guest, target);
    let failure: unknown;
    for (const address of candidates.slice(0, MAX_ADDRESSES_TRIED)) {
      signal?.throwIfAborted();
      try {
        return { socket: await this.#connect(address, target.port, signal), address };
      } catch (error) {
        failure = error;
      }
    }
    signal?.throwIfAborted();
    throw new UnreachableError(`no connection to ${target.name ?? target.address}:${target.port}`, {
      cause: failure,
    });
  }

  /** Only a new question counts in the guest's quota: many connections to one name at once wait for one answer. */
  async #lookUp(guest: Guest, name: string): Promise<FoundName> {
    const { lookups, quota } = this.#options;
    const cached = lookups.findCached(name);
    if (cached !== undefined) return cached;
    const open = lookups.findOpen(name);
    if (open !== undefined) return waitFound(name, open);
    const giveBack = quota.takeQuestion(guest.address);
    if (giveBack === undefined) throw new UnreachableError(`the guest resolves too many names`);
    return waitFound(name, lookups.lookUp(name)).finally(giveBack);
  }

  /** Lists the addresses to try. The address that the guest chose from its DNS answer comes first. */
  async #listCandidates(guest: Guest, { name, address }: DialTarget): Promise<string[]> {
    if (name === undefined) return address === undefined ? [] : [address];
    const addresses = await this.resolveName(guest, name);
    if (address === undefined || !addresses.includes(address)) return addresses;
    return [address, ...addresses.filter((other) => other !== address)];
  }

  async #connect(address: string, port: number, signal: AbortSignal | undefined): Promise<Socket> {
    const socket = connect({ ...SOCKET_OPTIONS, host: address, port });
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const leave = () => reject(signal?.reason as Error);
    signal?.addEventListener('abort', leave, { once: true });
    socket.once('connect', () => resolve(undefined));
    socket.once('error', reject);
    try {
      await withDeadline(
        `connection to ${address}`,
        this.#options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS,
        promise,
      );
    } catch (error) {
      // The socket may emit another error while it is destroyed.
      socket.on('error', () => undefined).destroy();
      throw error;
    } finally {
      signal?.removeEventListener('abort', leave);
      socket.removeListener('error', reject);
    }
    return socket.pause();
  }
}

/** Waits for a look-up. Throws `UnreachableError` if no resolver has answered in time. */
async function waitFound(name: string, lookup: Promise<FoundName | undefined>): Promise<FoundName> {
  let result;
  try {
    result = await withDeadline(`resolving ${name}`, RESOLVE_TIMEOUT_MS, lookup);
  } catch (error) {
    throw new UnreachableError(`${name} could not be resolved`, { cause: error });
  }
  if (result === undefined) throw new UnreachableError(`no resolver answered for ${name}`);
  return result;
}
