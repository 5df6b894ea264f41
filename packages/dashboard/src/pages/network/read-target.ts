/** The destination of a connection, as people type it. */
export type Protocol = 'tls' | 'http' | 'other' | 'udp';

export interface Target {
  /** Host name that is connected to. */
  name?: string | undefined;
  /** Address that is connected to, or to which the name resolves. */
  address?: string | undefined;
  protocol: Protocol;
}

export interface ReadDestination {
  host: string;
  isAddress: boolean;
  port: number | undefined;
}

const HTTP_PORTS = new Set([80, 8000, 8080]);
const OTHER_PORTS = new Set([21, 22, 25, 53, 110, 143, 389, 587, 1433, 3306, 5432, 5672, 6379, 9092, 27017]);
const MAX_PORT = 65_535;

/** Returns the protocol that a port usually has. */
export function guessProtocol(port: number): Protocol {
  if (HTTP_PORTS.has(port)) return 'http';
  return OTHER_PORTS.has(port) ? 'other' : 'tls';
}

/** Reads a host name, an address or a URL, each with or without a port. Returns undefined for an empty text. */
export function readDestination(text: string): ReadDestination | undefined {
  const trimmed = text.trim();
  if (trimmed === '') return undefined;
  const url = /^[a-z][a-z0-9+.-]*:\/\//iu.test(trimmed) ? URL.parse(trimmed) : null;
  if (url !== null)
    return build(unwrap(url.hostname), url.port === '' ? portOf(url.protocol) : Number(url.port));
  const [, bracketed, bracketedPort] = /^\[([^\]]*)\](?::(\d+))?$/u.exec(trimmed) ?? [];
  if (bracketed !== undefined) return build(bracketed, toPort(bracketedPort));
  const [, host, port] = /^([^:]*):(\d+)$/u.exec(trimmed) ?? [];
  return host === undefined ? build(trimmed, undefined) : build(host, toPort(port));
}

function build(host: string, port: number | undefined): ReadDestination {
  return { host, isAddress: /^\d+(?:\.\d+){3}$/u.test(host) || host.includes(':'), port };
}

function unwrap(host: string): string {
  return host.startsWith('[') ? host.slice(1, -1) : host;
}

function portOf(protocol: string): number | undefined {
  return { 'http:': 80, 'https:': 443, 'ssh:': 22 }[protocol];
}

function toPort(text: string | undefined): number | undefined {
  const port = Number(text);
  return Number.isInteger(port) && port > 0 && port <= MAX_PORT ? port : undefined;
}
