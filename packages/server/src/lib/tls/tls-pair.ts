/**
 * The TLS certificate and key of the API. The process that starts the service reads them with its own rights before
 * anything runs, so the files can stay closed to all other users. Every error names the setting, the file and the
 * remedy.
 */
import { createPrivateKey, X509Certificate, type KeyObject } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import { Secret } from '../secret.ts';

export interface TlsPaths {
  certPath: string;
  keyPath: string;
}

export interface TlsPair {
  /** PEM: the server's certificate first, then the chain to its authority. */
  cert: string;
  /** PEM. */
  key: Secret;
}

export class TlsError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'TlsError';
  }
}

const CERT_SETTING = 'COPPICE_TLS_CERT';
const KEY_SETTING = 'COPPICE_TLS_KEY';
const MAX_FILE_BYTES = 1 << 20;
const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/gu;

/** Reads and validates the pair. Throws {@link TlsError} if clients could not use it at `now`. */
export function readTlsPair({ certPath, keyPath }: TlsPaths, now: Date = new Date()): TlsPair {
  const cert = readSetting(CERT_SETTING, certPath);
  const key = readSetting(KEY_SETTING, keyPath);
  const chain = parseChain(cert, certPath);
  const [server] = chain;
  if (server === undefined) {
    throw new TlsError(`${CERT_SETTING}: ${certPath} holds no certificate in PEM form`);
  }
  checkMatch(chain, parseKey(key, keyPath), { certPath, keyPath });
  checkValidity(server, certPath, now);
  const pair = { cert, key: new Secret(key) };
  try {
    createSecureContext(toSecureContext(pair));
  } catch (error) {
    throw new TlsError(`${CERT_SETTING}: ${certPath} cannot be served: ${reasonOf(error)}`, error);
  }
  return pair;
}

/** Returns the options of a TLS server with this pair. */
export function toSecureContext({ cert, key }: TlsPair): SecureContextOptions {
  return { cert, key: key.reveal(), minVersion: 'TLSv1.2' };
}

/** Returns the server's own certificate of a validated pair. */
export function serverCertificate({ cert }: TlsPair): X509Certificate {
  return new X509Certificate(cert);
}

const READ_FAILURES: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  ENOTDIR: 'does not exist',
  EACCES: 'may not be read by the user that starts the service: start it as root, or let that user read it',
  EISDIR: 'is a directory; name the file in it',
};

function readSetting(setting: string, path: string): string {
  try {
    if (statSync(path).size > MAX_FILE_BYTES)
      throw new TlsError(`${setting}: ${path} is over 1 MiB, which no PEM file is`);
    return readFileSync(path, 'utf8');
  } catch (error) {
    const reason = READ_FAILURES[(error as NodeJS.ErrnoException).code ?? ''];
    throw reason === undefined ? error : new TlsError(`${setting}: ${path} ${reason}`, error);
  }
}

function parseChain(cert: string, path: string): X509Certificate[] {
  return (cert.match(PEM_CERTIFICATE) ?? []).map((pem, index) => {
    try {
      return new X509Certificate(pem);
    } catch (error) {
      throw new TlsError(`${CERT_SETTING}: certificate ${index + 1} in ${path} is broken`, error);
    }
  });
}

function parseKey(key: string, path: string): KeyObject {
  try {
    return createPrivateKey(key);
  } catch (error) {
    const isEncrypted = /ENCRYPTED/u.test(key);
    const reason = isEncrypted
      ? 'is encrypted; write it without a passphrase ("openssl pkey -in … -out …"), readable by root only'
      : 'holds no private key in PEM form';
    throw new TlsError(`${KEY_SETTING}: ${path} ${reason}`, error);
  }
}

function checkMatch(chain: readonly X509Certificate[], key: KeyObject, paths: TlsPaths): void {
  const index = chain.findIndex((certificate) => certificate.checkPrivateKey(key));
  if (index === 0) return;
  const { certPath, keyPath } = paths;
  if (index > 0) {
    throw new TlsError(
      `${CERT_SETTING}: the server's own certificate is number ${index + 1} in ${certPath}; put it first, before its authorities`,
    );
  }
  throw new TlsError(`${KEY_SETTING}: ${keyPath} is not the key of the certificate in ${certPath}`);
}

function checkValidity(certificate: X509Certificate, path: string, now: Date): void {
  const { validFromDate, validToDate } = certificate;
  if (validToDate < now) {
    throw new TlsError(
      `${CERT_SETTING}: the certificate in ${path} expired on ${validToDate.toISOString()}; renew it`,
    );
  }
  if (validFromDate > now) {
    throw new TlsError(
      `${CERT_SETTING}: the certificate in ${path} is not valid before ${validFromDate.toISOString()}, and this machine's clock says ${now.toISOString()}`,
    );
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
