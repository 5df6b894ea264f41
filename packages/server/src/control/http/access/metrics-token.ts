/** Compares the credential of a scrape with the operator's token. No API key opens the metrics: they are of all tenants. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { AppError } from '@coppice/contract';

/** Returns a function that throws `unauthorized` unless the header carries the token. */
export function buildTokenCheck(token: string): (authorization: string | undefined) => void {
  // Digests have one length, and the comparison of two takes the same time wherever they differ.
  const expected = digest(token);
  return (authorization) => {
    const [, given = ''] = /^Bearer +(\S{1,256})$/iu.exec(authorization ?? '') ?? [];
    if (timingSafeEqual(digest(given), expected)) return;
    throw new AppError(
      'unauthorized',
      'send the header "Authorization: Bearer <COPPICE_METRICS_TOKEN>"; an API key is not accepted here',
    );
  };
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
