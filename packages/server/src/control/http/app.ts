import type { FastifyBaseLogger, FastifyInstance, RawServerDefault } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { IncomingMessage, ServerResponse } from 'node:http';

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
    /** What may stand for the `Authorization` header, in the query: browsers cannot send headers with a WebSocket. */
    credentialInQuery?: 'ticket' | 'ticket or key';
  }
  interface FastifyRequest {
    /** Whose key it carries; empty outside /v1. */
    organizationId: string;
    /** Empty like it. */
    apiKeyId: string;
    /** IP address that it comes from, seen through proxies that are trusted. */
    clientAddress: string;
  }
}
