/** How a runner joins an installation: tokens, and the messages of `POST /join` (docs/reference/runner-protocol.md). */
import { z } from 'zod';
import { Secret } from '../secret.ts';
import { RunnerId } from './runner-protocol.ts';
import { ProtocolVersions } from './wire-headers.ts';

const TOKEN = /^cjt_(?<secret>[A-Za-z0-9_-]{43})\.(?<authority>[0-9a-f]{64})$/u;
const HOST_AND_PORT =
  /^(?:\[(?<ipv6>[0-9A-Fa-f:.]+)\]|(?<host>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)):(?<port>\d{1,5})$/u;
const MAX_PORT = 65_535;
const FINGERPRINT = /^[0-9a-f]{64}$/u;

export interface JoinToken {
  secret: Secret;
  /** SHA-256 of the certificate of the authority, by which the runner recognizes the installation. */
  authority: string;
}

export function formatToken({ secret, authority }: JoinToken): string {
  return `cjt_${secret.reveal()}.${authority}`;
}

/** Returns undefined for a malformed token. */
export function parseToken(text: string): JoinToken | undefined {
  const { secret, authority } = TOKEN.exec(text)?.groups ?? {};
  return secret === undefined || authority === undefined
    ? undefined
    : { secret: new Secret(secret), authority };
}

export interface HostAndPort {
  host: string;
  port: number;
}

/** Parses `host:port`; an IPv6 address is in brackets. Returns undefined for anything else. */
export function parseAddress(text: string): HostAndPort | undefined {
  const { ipv6, host = ipv6, port } = HOST_AND_PORT.exec(text)?.groups ?? {};
  if (host === undefined || Number(port) < 1 || Number(port) > MAX_PORT) return undefined;
  return { host, port: Number(port) };
}

export function formatAddress({ host, port }: HostAndPort): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Body of `POST /join`. */
export const JoinRequest = z.strictObject({
  /** Of the token. */
  secret: z.string().regex(/^[A-Za-z0-9_-]{43}$/u, 'must be the secret of a token'),
  runner_id: RunnerId,
  address: z.string().refine((text) => parseAddress(text) !== undefined, {
    error: 'must be host:port, such as 10.0.0.5:9443',
  }),
  /** SHA-256 of the runner's certificate. */
  fingerprint: z.string().regex(FINGERPRINT, 'must be 64 lower-case hexadecimal digits'),
  protocol: ProtocolVersions,
});
export type JoinRequest = z.infer<typeof JoinRequest>;

/** Answer of `POST /join`. */
export const JoinAnswer = z.object({ runner_id: RunnerId, joined_at: z.iso.datetime() });
export type JoinAnswer = z.infer<typeof JoinAnswer>;
