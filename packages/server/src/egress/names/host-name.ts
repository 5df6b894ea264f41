/**
 * Folds names from a ClientHello, a Host field or a URL to the form that rules are compared with: lower case, no
 * trailing dot, A-labels. A text that some resolver or server could read differently is not a name: one with other
 * characters, or one that a C library reads as an address (`127.1`, `0x7f000001`, `2130706433`).
 */
import { foldSeenName } from '@coppice/contract';
import { isIPv4, isIPv6 } from 'node:net';

/** Matches a label that starts or ends with a hyphen, which host names do not allow. */
const HYPHEN_AT_END = /^-|-$/u;
const AUTHORITY = /^(?<host>\[[0-9a-f:.]{2,45}\]|[^:[\]]{1,254})(?::(?<port>\d{1,5}))?$/iu;
const MAX_PORT = 65_535;

export type Host = { kind: 'name'; name: string } | { kind: 'address'; address: string };

export interface Authority {
  host: Host;
  port: number;
}

/**
 * Returns the name in the spelling of the rules, or undefined for an invalid name. It is stricter than the rules are.
 * An address literal is not a name.
 */
export function parseHostName(text: string): string | undefined {
  const name = foldSeenName(text);
  return name?.split('.').some((label) => HYPHEN_AT_END.test(label)) === true ? undefined : name;
}

/**
 * Parses `host`, `host:port` or `[v6]:port`. Returns undefined for any other text, including one with user information.
 */
export function parseAuthority(text: string, defaultPort: number): Authority | undefined {
  const { host: hostText, port: portText } = AUTHORITY.exec(text)?.groups ?? {};
  const host = hostText === undefined ? undefined : parseHost(hostText);
  const port = portText === undefined ? defaultPort : Number(portText);
  if (host === undefined || port < 1 || port > MAX_PORT) return undefined;
  return { host, port };
}

export function isSameAuthority(one: Authority, other: Authority): boolean {
  return one.port === other.port && hostText(one.host) === hostText(other.host);
}

function parseHost(text: string): Host | undefined {
  if (text.startsWith('[')) return parseIpv6(text.slice(1, -1));
  if (isIPv4(text)) return { kind: 'address', address: text };
  const name = parseHostName(text);
  return name === undefined ? undefined : { kind: 'name', name };
}

/** Normalizes an IPv6 address with the URL parser, which has one spelling for each address. */
function parseIpv6(text: string): Host | undefined {
  if (!isIPv6(text)) return undefined;
  return { kind: 'address', address: new URL(`http://[${text}]/`).hostname.slice(1, -1) };
}

function hostText(host: Host): string {
  return host.kind === 'name' ? host.name : host.address;
}
