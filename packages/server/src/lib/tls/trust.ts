import { existsSync, readFileSync } from 'node:fs';
import { createSecureContext, getCACertificates, rootCertificates, type SecureContext } from 'node:tls';

/** Debian's file of certificate authorities, from its package and from the operator; set-up ensures that it exists. */
export const SYSTEM_CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';

/**
 * Builds a context that trusts the system's authorities, or Node's if the system has none, and those of
 * NODE_EXTRA_CA_CERTS. By default Node trusts only its own list and would not know a company's authority. Call once,
 * because this takes a while.
 */
export function readTrust(certificatesPath: string): SecureContext {
  const system = existsSync(certificatesPath) ? [readFileSync(certificatesPath, 'utf8')] : rootCertificates;
  return createSecureContext({ ca: [...system, ...getCACertificates('extra')], minVersion: 'TLSv1.2' });
}
