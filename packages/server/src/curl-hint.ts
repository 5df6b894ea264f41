/** Options and address for curl to reach the API from this machine, by a name in the certificate. */
import { isIP } from 'node:net';
import type { X509Certificate } from 'node:crypto';

export interface CurlTarget {
  /** Options in front of the address; empty or with a trailing space. */
  options: string;
  address: string;
}

export interface ServedCertificate {
  certificate: X509Certificate;
  /** File with the certificate, for curl's `--cacert`. */
  certPath: string;
}

export function buildCurlTarget(address: string, served: ServedCertificate | undefined): CurlTarget {
  if (served === undefined) return { options: '', address };
  const trust = `--cacert ${quoteArgument(served.certPath)} `;
  const url = new URL(address);
  const host = url.hostname.replace(/^\[|\]$/gu, '');
  const { certificate } = served;
  const isForHost =
    isIP(host) === 0 ? certificate.checkHost(host) !== undefined : certificate.checkIP(host) !== undefined;
  if (isForHost) return { options: trust, address };
  const name = findName(certificate);
  if (name === undefined) return { options: `--insecure `, address };
  const resolved = `--resolve ${name}:${url.port}:${host} `;
  return { options: `${trust}${isIP(name) === 0 ? resolved : ''}`, address: `https://${name}:${url.port}` };
}

/** Returns the first name of the certificate, with a label in place of a wildcard. */
function findName({ subjectAltName = '' }: X509Certificate): string | undefined {
  const [, kind, name] = /(?:^|, )(DNS|IP Address):([A-Za-z0-9.*-]+)(?:,|$)/u.exec(subjectAltName) ?? [];
  if (name === undefined) return undefined;
  return kind === 'DNS' ? name.replace(/^\*\./u, 'coppice.') : name;
}

/** Quotes an argument for a shell. */
export function quoteArgument(text: string): string {
  return /^[\w./@+-]+$/u.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
