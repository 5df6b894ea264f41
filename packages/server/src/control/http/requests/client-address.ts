/**
 * Finds the address of a request's client. A proxy appends the address of its caller to `X-Forwarded-For`; the caller
 * may have written anything further left. So the header is read from the right, for as long as a proxy that the
 * operator named wrote the entry:
 *
 *     X-Forwarded-For: <anything>, <client>, <inner proxy>        connection from <outer proxy>
 *                                  ▲ first that is not trusted
 */
import { BlockList, isIP } from 'node:net';

export type FindClientAddress = (connectedFrom: string, forwardedFor: string | undefined) => string;

/** `trusted`: addresses and ranges that `parseAddressRange` accepts. Throws a RangeError for other text. */
export function buildClientAddress(trusted: readonly string[]): FindClientAddress {
  const isProxy = buildIsProxy(trusted);
  return (connectedFrom, forwardedFor) => {
    let address = toPlainAddress(connectedFrom) ?? connectedFrom;
    const entries = forwardedFor?.split(',') ?? [];
    for (let entry = entries.pop(); entry !== undefined && isProxy(address); entry = entries.pop()) {
      const next = toPlainAddress(entry.trim());
      // The proxy did not write an address: its caller is unknown, but the proxy itself is known.
      if (next === undefined) return address;
      address = next;
    }
    return address;
  };
}

/** Builds a check whether an address, in the form of a socket, is one of `trusted`. Throws like the above. */
export function buildIsProxy(trusted: readonly string[]): (address: string) => boolean {
  const proxies = new BlockList();
  for (const text of trusted) addRange(proxies, text);
  return (address) => {
    const plain = toPlainAddress(address);
    return plain !== undefined && proxies.check(plain, isIP(plain) === 6 ? 'ipv6' : 'ipv4');
  };
}

/** Returns address and prefix length, or undefined for text that is neither an address nor a range (CIDR). */
export function parseAddressRange(text: string): { address: string; prefix: number } | undefined {
  const [address = '', length, ...rest] = text.split('/');
  const bits = { 0: 0, 4: 32, 6: 128 }[isIP(address)] ?? 0;
  const prefix = length === undefined ? bits : Number(length);
  const isGoodLength = length === undefined || (/^\d{1,3}$/u.test(length) && prefix <= bits);
  return bits === 0 || rest.length > 0 || !isGoodLength ? undefined : { address, prefix };
}

function addRange(list: BlockList, text: string): void {
  const range = parseAddressRange(text);
  if (range === undefined) throw new RangeError(`${text} is neither an address nor a range`);
  list.addSubnet(range.address, range.prefix, isIP(range.address) === 6 ? 'ipv6' : 'ipv4');
}

const MAPPED = /^::ffff:(?<ipv4>\d+\.\d+\.\d+\.\d+)$/iu;
/** Some proxies add the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`. */
const WITH_PORT = /^(?:(?<ipv4>[\d.]+):\d{1,5}|\[(?<ipv6>[^\]]*)\](?::\d{1,5})?)$/u;

function toPlainAddress(text: string): string | undefined {
  const groups = WITH_PORT.exec(text)?.groups;
  const bare = groups?.['ipv4'] ?? groups?.['ipv6'] ?? text;
  const address = MAPPED.exec(bare)?.groups?.['ipv4'] ?? bare;
  return isIP(address) === 0 || address.includes('%') ? undefined : address;
}
