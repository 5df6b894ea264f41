import { existsSync, readFileSync } from 'node:fs';
import { createSecureContext, getCACertificates, rootCertificates, type SecureContext } from 'node:tls';

/** Where Debian collects the authorities of its package and those that the operator added; the set-up makes sure of it. */
export const SYSTEM_CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';

/**
 * The system's authorities, or Node's where there are none, and those of NODE_EXTRA_CA_CERTS. Node would believe its own
 * list alone, and know nothing of a company's authority. Made once: it takes a while.
 */
export function readTrust(certificatesPath: string): SecureContext {
  const system = existsSync(certificatesPath) ? [readFileSync(certificatesPath, 'utf8')] : rootCertificates;
  return createSecureContext({ ca: [...system, ...getCACertificates('extra')], minVersion: 'TLSv1.2' });
}
