/** Authenticates requests: from the `Authorization` header, a ticket, or a link to a file, to an organization. */
import { timingSafeEqual } from 'node:crypto';
import { AppError, parseApiKey, type KeyScope } from '@coppice/contract';
import type { Owner } from '../accounts/organizations/organization-store.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { Database } from '../db/database.ts';
import { findActiveKey, findActiveKeyById, type ActiveKey } from './api-key-store.ts';
import { hashApiKey } from './hash-api-key.ts';
import type { FileLinks } from './file-links.ts';
import { assertOwnRegion, type RegionsOfKeys } from './other-region.ts';
import type { Tickets } from './tickets.ts';

/** The owner and rights that a request acts with. */
interface Principal extends Owner {
  apiKeyId: string;
  scope: KeyScope;
  reach: Reach;
  /** The person of the session whose key it is; null for other keys. */
  userId: string | null;
}

/** The credential of a request: the header, a ticket for the sandbox named in its path, or the token of a link. */
export type Credential =
  | { authorization: string | undefined }
  | { ticket: string; sandboxId: string; isRedeemed?: boolean }
  | {
      link: string;
      /** Whether this service has given the link. It may have expired, or its key may be revoked. */
      isSigned: boolean;
    };

export type Authenticate = (credential: Credential) => Promise<Principal>;

export interface AuthenticatorParts extends RegionsOfKeys {
  db: Database;
  tickets: Tickets;
  fileLinks: FileLinks;
}

/** Returns a function that rejects with `unauthorized` for every key that is not an active one of this region. */
export function buildAuthenticator({ db, tickets, fileLinks, ...regions }: AuthenticatorParts): Authenticate {
  const byKey = buildKeyAuthenticator(db, regions);
  return async (credential) => {
    if ('authorization' in credential) return byKey(credential.authorization);
    const isLink = 'link' in credential;
    const { apiKeyId } = isLink
      ? fileLinks.open(credential.link)
      : await tickets.redeem(credential.ticket, credential.sandboxId, credential.isRedeemed);
    const key = await findActiveKeyById(db, apiKeyId);
    if (key === undefined) {
      const what = isLink ? 'the link' : 'ticket';
      throw new AppError('unauthorized', `${what}: the API key that requested it is revoked or has expired`);
    }
    return toPrincipal(key);
  };
}

function buildKeyAuthenticator(
  db: Database,
  regions: RegionsOfKeys,
): (authorization: string | undefined) => Promise<Principal> {
  return async (authorization) => {
    const key = parseBearer(authorization);
    const parts = parseApiKey(key);
    if (parts === undefined) {
      throw new AppError(
        'unauthorized',
        'the API key is malformed: it looks like cop_live_<region>_<40 characters>',
      );
    }
    assertOwnRegion(parts.region, regions);
    const sha256 = hashApiKey(key);
    const stored = await findActiveKey(db, sha256);
    // The index found the key by its hash; the comparison itself must take the same time wherever two hashes differ.
    if (stored === undefined || !timingSafeEqual(stored.sha256, sha256)) {
      throw new AppError('unauthorized', 'the API key is unknown, revoked or expired');
    }
    return toPrincipal(stored);
  };
}

function toPrincipal({ id, owner, scope, reach, userId }: ActiveKey): Principal {
  return { ...owner, apiKeyId: id, scope, reach, userId };
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
