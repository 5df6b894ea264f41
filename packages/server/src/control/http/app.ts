import type { KeyScope, Role } from '@coppice/contract';
import type { FastifyBaseLogger, FastifyInstance, RawServerDefault } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { z } from 'zod';
import type { Audience } from '../accounts/access.ts';
import type { Reach } from '../accounts/reach.ts';
import type { KeyAccess } from './access/key-access.ts';

/** Fastify with zod schemas. */
export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  ZodTypeProvider
>;

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The body is piped, not parsed, and has no deadline of its own. */
    hasRawBody?: boolean;
    /** What is the guest's traffic is not counted against the rate of requests; how much of it is open at once is. */
    isUnlimited?: boolean;
    /** Text messages of a WebSocket, for the description. */
    frames?: { client: readonly z.ZodType[]; service: readonly z.ZodType[] };
    /** The URL in the description, where the route is another one. */
    describedAs?: string;
    /** What may stand for the `Authorization` header, in the query: browsers cannot send headers with a WebSocket. */
    credentialInQuery?: 'ticket' | 'ticket or key';
    /** What a route below /v1 needs of the key. Every one declares it. */
    access?: KeyAccess;
    /** Below /account/organizations/{organization}: who may use it. */
    audience?: Audience;
  }
  interface FastifyRequest {
    /** Whose key it carries; empty outside /v1. */
    organizationId: string;
    /** Empty like it. */
    teamId: string;
    apiKeyId: string;
    keyScope: KeyScope;
    /** What of the organization its key sees; unset outside /v1. */
    reach: Reach;
    /** Aborted when the API key that it came with is good no longer; null where none counts. */
    keyEnd: AbortSignal | null;
    /** Who is signed in, and by which session; empty outside /account. */
    userId: string;
    sessionId: string;
    /** The person's in the organization that the path names, below /account. */
    role: Role;
    /** `scheme://host` that the client asked, seen through proxies that are trusted. */
    ownOrigin: string;
    /** IP address that it comes from, seen through proxies that are trusted. */
    clientAddress: string;
  }
}
