import type { ErrorCode, KeyScope, Role } from '@coppice/contract';
import type { FastifyBaseLogger, FastifyInstance, RawServerDefault } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { z } from 'zod';
import type { Span } from '../../lib/tracing/span.ts';
import type { Audience } from '../accounts/organizations/access.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { KeyAccess } from './access/key-access.ts';
import type { JsonMeasure } from './requests/measure-json.ts';

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
    /** Limits of a JSON body that is larger than others may be. */
    maxJson?: JsonMeasure;
    /** The guest's traffic: it does not count against the rate of requests, but against the limit on open streams. */
    isUnlimited?: boolean;
    /** Files for everyone: requests for them are not traced. */
    isUntraced?: boolean;
    /** Text messages of a WebSocket, for the API description. */
    frames?: { client: readonly z.ZodType[]; service: readonly z.ZodType[] };
    /** URL in the API description, if it differs from the route's. */
    describedAs?: string;
    /** Credential that the query may carry instead of `Authorization`: browsers send no headers with a WebSocket. */
    credentialInQuery?: 'ticket' | 'ticket or key';
    /** The credential is the path parameter `token`. */
    isFileLink?: boolean;
    /** Access that a route below /v1 needs of the key. Every such route declares it. */
    access?: KeyAccess;
    /** Members who may use a route below /account/organizations/{organization}. */
    audience?: Audience;
  }
  interface FastifyInstance {
    /** Counts an error that a caller gets. */
    countError: (code: ErrorCode) => void;
  }
  interface FastifyRequest {
    /** Organization of the key or preview link, or, below /account, of the path; else empty. */
    organizationId: string;
    /** Team of the key, or, below /account, of the path; else empty. */
    teamId: string;
    apiKeyId: string;
    keyScope: KeyScope;
    /** Part of the organization that the key sees; unset outside /v1. */
    reach: Reach;
    /** Aborts when the API key of the request is no longer valid; null where no key counts. */
    keyEnd: AbortSignal | null;
    /** The signed-in user, by cookie or by the key of a session; else empty. */
    userId: string;
    /** The session of the cookie; empty outside /account. */
    sessionId: string;
    /** The user's role in the organization that the path names, below /account. */
    role: Role;
    /** The span of the request; null if it is not recorded. */
    span: Span | null;
    /** `scheme://host` that the client requested, as trusted proxies report it. */
    ownOrigin: string;
    /** IP address of the client, as trusted proxies report it. */
    clientAddress: string;
  }
}
