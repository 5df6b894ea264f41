import { existsSync, readFileSync } from 'node:fs';
import { createSecureContext, rootCertificates, type SecureContext } from 'node:tls';

/** Where Debian collects the authorities of its package and those that the operator added; the set-up makes sure of it. */
export const SYSTEM_CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';

/** Node would believe its own list alone, and know nothing of a company's authority. */
export function readTrust(certificatesPath: string): SecureContext {
  const ca = existsSync(certificatesPath) ? readFileSync(certificatesPath, 'utf8') : [...rootCertificates];
  return createSecureContext({ ca });
}
