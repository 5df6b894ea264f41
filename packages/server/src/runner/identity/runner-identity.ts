/**
 * The key with which controls recognize this runner on the network. The runner makes it once and signs its certificate
 * itself; control pins the fingerprint of that certificate when the runner joins.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { writeDurably } from '../../lib/files/durable-file.ts';
import { findFile } from '../../lib/files/find-file.ts';
import { fingerprintOf } from '../../lib/tls/control-role.ts';
import { exportKey, issueCertificate, makeKeyPair } from '../../lib/tls/issue-certificate.ts';

const NAME = 'identity.pem';
/** Clocks of two machines may differ. Nothing depends on the validity, as the certificate is pinned. */
const VALID_FROM = new Date('2020-01-01T00:00:00.000Z');
const VALID_TO = new Date('2099-12-31T23:59:59.000Z');

export interface RunnerCertificate {
  /** PEM. */
  cert: string;
  /** PEM. */
  key: string;
  fingerprint: string;
}

/** Returns the identity, which is made if there is none. One process at a time may call this. */
export function openRunnerIdentity(dataDir: string, runnerId: string): RunnerCertificate {
  const path = join(dataDir, NAME);
  const pem = findFile(path)?.toString('utf8') ?? make(path, runnerId);
  try {
    const certificate = new X509Certificate(pem);
    const key = createPrivateKey(pem);
    if (!certificate.checkPrivateKey(key)) throw new Error('the key is that of another certificate');
    return { cert: certificate.toString(), key: exportKey(key), fingerprint: fingerprintOf(certificate) };
  } catch (error) {
    throw new AppError(
      'internal',
      `${path} is damaged: put back a copy, or delete it and joined.json next to it, and join again with a token of ` +
        `"coppice admin runner token --runner ${runnerId}"`,
      { cause: error },
    );
  }
}

/** Writes key and certificate as one file, so that there are never parts of two identities. */
function make(path: string, runnerId: string): string {
  const { publicKey, privateKey } = makeKeyPair();
  const request = { commonName: runnerId, publicKey, validFrom: VALID_FROM, validTo: VALID_TO };
  const pem = issueCertificate(request, { commonName: runnerId, key: privateKey }) + exportKey(privateKey);
  writeDurably(path, pem);
  return pem;
}
