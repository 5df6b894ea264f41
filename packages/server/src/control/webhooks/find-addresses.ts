/**
 * Resolves names that a tenant chose. Not with the resolver of the system: each of its look-ups occupies one of a few
 * threads for as long as a name server does not answer, and files, passwords and all else of control need these threads.
 */
import { readFile } from 'node:fs/promises';
import { Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';

const HOSTS_FILE = '/etc/hosts';
const TRY_MS = 2_000;
const TRIES = 2;
const DEADLINE_MS = 5_000;
/** Addresses of a name that are tried. */
const MAX_ADDRESSES = 16;

export interface FoundAddress {
  address: string;
  /** 4 or 6. */
  family: number;
}

export interface FindOptions {
  /** Name servers, `address:port`; default: those of the system. */
  servers?: readonly string[];
}

/** Returns all addresses of a name, those of IPv4 first: not every host has routes of IPv6. Throws without any. */
export async function findAddresses(name: string, { servers }: FindOptions = {}): Promise<FoundAddress[]> {
  const own = findInHosts(await readHosts(), name);
  if (own.length > 0) return own;
  const resolver = new Resolver({ timeout: TRY_MS, tries: TRIES });
  if (servers !== undefined) resolver.setServers(servers);
  // What was found until then counts.
  const timer = setTimeout(() => resolver.cancel(), DEADLINE_MS);
  try {
    const [four, six] = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
    const found = [...toFound(four, 4), ...toFound(six, 6)];
    if (found.length === 0) throw new Error('the name has no address', { cause: reasonOf(four) });
    return found;
  } finally {
    clearTimeout(timer);
  }
}

function toFound(result: PromiseSettledResult<string[]>, family: number): FoundAddress[] {
  if (result.status === 'rejected') return [];
  return result.value.slice(0, MAX_ADDRESSES).map((address) => ({ address, family }));
}

function reasonOf(result: PromiseSettledResult<unknown>): unknown {
  return result.status === 'rejected' ? result.reason : undefined;
}

async function readHosts(): Promise<string> {
  return readFile(HOSTS_FILE, 'utf8').catch(() => '');
}

/** Finds the addresses of a name in the text of a hosts file. */
export function findInHosts(text: string, name: string): FoundAddress[] {
  const wanted = name.toLowerCase().replace(/\.$/u, '');
  const found = text.split('\n').flatMap((line) => {
    const [address = '', ...names] = line.replace(/#.*/u, '').trim().split(/\s+/u);
    const family = isIP(address);
    return family !== 0 && names.some((one) => one.toLowerCase() === wanted) ? [{ address, family }] : [];
  });
  return found.toSorted((one, other) => one.family - other.family);
}
