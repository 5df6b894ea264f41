/**
 * TLS between the processes of an installation. Its authority issues certificates to controls only, each with its id in a
 * URI; runners have keys of their own, which controls pin.
 */
import { createHash, X509Certificate } from 'node:crypto';
import type { SecureContextOptions, TLSSocket } from 'node:tls';

const CONTROL_URI = /^URI:coppice:\/\/control\/(?<id>ctl[0-9a-f]{20})$/u;

/** In PEM: the own certificate with its key, and the certificate of the authority that the peer must come from. */
export interface Credentials {
  cert: string;
  key: string;
  ca: string;
}

/** The options of both sides of a connection within an installation. */
export function toInternalContext({ cert, key, ca }: Credentials): SecureContextOptions {
  return { cert, key, ca, minVersion: 'TLSv1.3' };
}

export function buildControlUri(controlId: string): string {
  return `coppice://control/${controlId}`;
}

/** Returns the id of the control that a certificate belongs to. It says nothing about the issuer. */
export function findControlId({ subjectAltName }: X509Certificate): string | undefined {
  return CONTROL_URI.exec(subjectAltName ?? '')?.groups?.['id'];
}

/** Returns the id of the control at the other end; undefined for every other peer. */
export function findControlPeer(socket: TLSSocket): string | undefined {
  const certificate = socket.authorized ? socket.getPeerX509Certificate() : undefined;
  return certificate === undefined ? undefined : findControlId(certificate);
}

/** Returns the SHA-256 of a certificate in lower-case hexadecimal digits. */
export function fingerprintOf(certificate: X509Certificate | string): string {
  const { raw } = typeof certificate === 'string' ? new X509Certificate(certificate) : certificate;
  return createHash('sha256').update(raw).digest('hex');
}
