/**
 * Who a request comes from. A proxy appends the address that it was called from to `X-Forwarded-For`; whatever stands
 * further left may have been written by the caller. So the header is read from the right, for as long as what wrote
 * the entry is a proxy that the operator named:
 *
 *     X-Forwarded-For: <anything>, <client>, <inner proxy>        connection from <outer proxy>
 *                                  ▲ first that is not trusted
 */
import { BlockList, isIP } from 'node:net';

export type FindClientAddress = (connectedFrom: string, forwardedFor: string | undefined) => string;

/** `trusted` are addresses and ranges that `parseAddressRange` knows. */
export function buildClientAddress(trusted: readonly string[]): FindClientAddress {
  const isProxy = buildIsProxy(trusted);
  return (connectedFrom, forwardedFor) => {
    let address = toPlainAddress(connectedFrom) ?? connectedFrom;
    const entries = forwardedFor?.split(',') ?? [];
    for (let entry = entries.pop(); entry !== undefined && isProxy(address); entry = entries.pop()) {
      const next = toPlainAddress(entry.trim());
      // What a proxy wrote is no address: who called it cannot be told, but the proxy itself can.
      if (next === undefined) return address;
      address = next;
    }
    return address;
  };
}

/** Whether an address, as a socket tells it, is one of `trusted`. */
export function buildIsProxy(trusted: readonly string[]): (address: string) => boolean {
  const proxies = new BlockList();
  for (const text of trusted) addRange(proxies, text);
  return (address) => {
    const plain = toPlainAddress(address);
    return plain !== undefined && proxies.check(plain, isIP(plain) === 6 ? 'ipv6' : 'ipv4');
  };
}

/** Address and length of the prefix; undefined for what is neither an address nor a range (CIDR). */
export function parseAddressRange(text: string): { address: string; prefix: number } | undefined {
  const [address = '', length, ...rest] = text.split('/');
  const bits = { 0: 0, 4: 32, 6: 128 }[isIP(address)] ?? 0;
  const prefix = length === undefined ? bits : Number(length);
  const isGoodLength = length === undefined || (/^\d{1,3}$/u.test(length) && prefix <= bits);
  return bits === 0 || rest.length > 0 || !isGoodLength ? undefined : { address, prefix };
}

function addRange(list: BlockList, text: string): void {
  const range = parseAddressRange(text);
  if (range === undefined) throw new RangeError(`${text} is no address and no range`);
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
