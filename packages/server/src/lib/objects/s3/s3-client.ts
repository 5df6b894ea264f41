import { readFileSync } from 'node:fs';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { createSecureContext, type SecureContext } from 'node:tls';
import { S3Client } from '@aws-sdk/client-s3';
import { readTrust, SYSTEM_CERTIFICATES } from '../../tls/trust.ts';
import { stretched } from '../../waiting/deadline.ts';
import type { S3Location } from '../object-store-config.ts';
import { ObjectStoreError } from '../object-store-error.ts';

const CONNECT_MS = 5000;
const MAX_SOCKETS = 64;

/**
 * Builds a client that sends each request once: the callers repeat. Its credentials come from the SDK's standard chain:
 * environment, files, web identity, container or instance.
 */
export function createS3Client({ endpoint, region, isPathStyle, caPath }: S3Location): S3Client {
  const sockets = { keepAlive: true, maxSockets: MAX_SOCKETS };
  const isPlain = endpoint?.startsWith('http:') === true;
  return new S3Client({
    region,
    ...(endpoint === undefined ? {} : { endpoint }),
    forcePathStyle: isPathStyle,
    maxAttempts: 1,
    // Checksums that many servers do not know: those of TLS and of the signature remain.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: {
      connectionTimeout: stretched(CONNECT_MS),
      ...(isPlain
        ? { httpAgent: new HttpAgent(sockets) }
        : { httpsAgent: new HttpsAgent({ ...sockets, secureContext: openTrust(caPath) }) }),
    },
  });
}

function openTrust(caPath: string | undefined): SecureContext {
  if (caPath === undefined) return readTrust(SYSTEM_CERTIFICATES);
  try {
    return createSecureContext({ ca: readFileSync(caPath, 'utf8'), minVersion: 'TLSv1.2' });
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new ObjectStoreError(
      `the authorities in ${caPath} cannot be used: ${reason}; set ca= to a PEM file that the account of the service may read`,
      { isTransient: false, cause },
    );
  }
}
