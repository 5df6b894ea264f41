/** Who is asking: from the `Authorization` header to an organization. */
import { timingSafeEqual } from 'node:crypto';
import { AppError, parseApiKey } from '@coppice/contract';
import type { Database } from '../db/database.ts';
import { findActiveKey } from './api-key-store.ts';
import { hashApiKey } from './hash-api-key.ts';

/** What a request may act for. */
export interface Principal {
  organizationId: string;
}

export type Authenticate = (authorization: string | undefined) => Promise<Principal>;

/** Rejects with AppError `unauthorized` for every key that is not a live one of this region. */
export function buildAuthenticator(db: Database, region: string): Authenticate {
  return async (authorization) => {
    const key = parseBearer(authorization);
    const parts = parseApiKey(key);
    if (parts === undefined) {
      throw new AppError(
        'unauthorized',
        'the API key is malformed: it looks like cop_live_<region>_<40 characters>',
      );
    }
    if (parts.region !== region) {
      throw new AppError(
        'unauthorized',
        `this API key belongs to region "${parts.region}", this service is region "${region}"; use the service of "${parts.region}"`,
      );
    }
    const sha256 = hashApiKey(key);
    const stored = await findActiveKey(db, sha256);
    // The index found it by its hash already; the comparison itself must not depend on where they differ.
    if (stored === undefined || !timingSafeEqual(stored.sha256, sha256)) {
      throw new AppError('unauthorized', 'the API key is unknown or revoked');
    }
    return { organizationId: stored.organizationId };
  };
}

function parseBearer(authorization: string | undefined): string {
  if (authorization === undefined) {
    throw new AppError('unauthorized', 'no API key: send the header "Authorization: Bearer <API key>"');
  }
  const match = /^Bearer +([\x21-\x7e]{1,256})$/i.exec(authorization.trim());
  if (match?.[1] === undefined) {
    throw new AppError('unauthorized', 'the Authorization header is not "Bearer <API key>"');
  }
  return match[1];
}
