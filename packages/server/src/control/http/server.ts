/** The public API: Fastify, its hooks in the order in which they run, and the endpoints. */
import { AppError } from '@coppice/contract';
import Fastify, {
  LogController,
  type FastifyBaseLogger,
  type FastifyReply,
  type FastifyRequest,
  type FastifyServerOptions,
} from 'fastify';
import { serializerCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import type { Logger } from 'pino';
import type { TlsPair } from '../../lib/tls/tls-pair.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import { addAccountRoutes } from './account/account-routes.ts';
import { AllowedMethods } from './serving/allowed-methods.ts';
import { answerError } from './answers/answer-error.ts';
import type { App } from './app.ts';
import { authenticate, type AuthenticationParts } from './access/authenticate.ts';
import { addCrossOrigin, assertNoForeignPage } from './access/cross-origin.ts';
import { withoutToken } from './access/file-link-path.ts';
import { addLinkedFile } from './endpoints/files/linked-file.ts';
import { addHealthz } from './endpoints/healthz.ts';
import { addMcp } from './endpoints/mcp/serve-mcp.ts';
import { addMetrics } from './endpoints/metrics.ts';
import { addPreviewOrigin } from './endpoints/ports/preview-origin.ts';
import { addDashboard } from './endpoints/sites/dashboard.ts';
import { addDocs } from './endpoints/sites/docs.ts';
import { answerBrokenHttp, newRequestId } from './answers/broken-http.ts';
import { JSON_BODY_BYTES } from './answers/error-mapper.ts';
import { addExposure, TlsServers } from './serving/exposure.ts';
import { addJsonBody } from './requests/json-body.ts';
import { checkKeyAccess, requireKeyAccess } from './access/key-access.ts';
import { addOpenApi } from './openapi/openapi.ts';
import { buildErrorHandler } from './forwarding/error-handler.ts';
import type { HttpParts } from './parts.ts';
import { discardBody } from './requests/discard-body.ts';
import { isForwarded, TAKING_OVER } from './requests/forwarded-request.ts';
import { addProxiedMethods, buildRewrite } from './access/proxied-route.ts';
import { limitRate } from './access/rate-limit.ts';
import { addRequestLog, readRequestId } from './serving/request-log.ts';
import { addRequestMetrics } from './serving/request-metrics.ts';
import { addRequestTrace } from './serving/request-trace.ts';
import { addV1Routes } from './v1-routes.ts';
import { compileValidator } from './requests/validator.ts';
import { addWebSockets } from './access/web-socket-peer.ts';

/** Deadline for the head of a request. Bodies have no common limit: uploads are long. */
const HEADERS_DEADLINE_MS = 30_000;
const KEEP_ALIVE_MS = 75_000;
const READING: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);
/** No separate limit: a head holds 16 KiB, and the schema of a parameter limits its length. */
const MAX_PARAM_LENGTH = 16_384;

export interface Server {
  app: App;
  /** Undefined when the API is plain HTTP. */
  tls: TlsServers | undefined;
}

type SchemaController = NonNullable<FastifyServerOptions['schemaController']>;

/** Keeps Fastify from loading its own compilers, for JSON Schema. Its type knows only those, hence the cast. */
const SCHEMA_CONTROLLER = {
  compilersFactory: { buildValidator: () => compileValidator, buildSerializer: () => serializerCompiler },
} as unknown as SchemaController;

/** Builds the server without listening. */
export async function buildServer(parts: HttpParts, log: Logger): Promise<Server> {
  const loggerInstance: FastifyBaseLogger = log;
  const tls = buildTls(parts.exposure.tls);
  const app: App = Fastify({
    loggerInstance,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    genReqId: (request) => readRequestId(request.headers['x-request-id'], newRequestId),
    bodyLimit: JSON_BODY_BYTES,
    requestTimeout: 0,
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    rewriteUrl: buildRewrite(() => parts.previewOrigins),
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    http: { headersTimeout: HEADERS_DEADLINE_MS },
    schemaController: SCHEMA_CONTROLLER,
    ...(tls === undefined ? {} : { serverFactory: tls.create }),
    frameworkErrors: answerError,
    clientErrorHandler: answerBrokenHttp,
  }).withTypeProvider<ZodTypeProvider>();
  app.setErrorHandler(buildErrorHandler(parts));
  app.decorateRequest('organizationId', '');
  app.decorateRequest('teamId', '');
  app.decorateRequest('apiKeyId', '');
  app.decorateRequest('keyScope', 'read');
  // Fastify refuses to share an object between requests. Outside /v1 there is no reach, and using it fails.
  app.decorateRequest('reach', null as unknown as Reach);
  app.decorateRequest('keyEnd', null);
  app.decorateRequest('userId', '');
  app.decorateRequest('sessionId', '');
  app.decorateRequest('role', 'member');
  const allowedMethods = new AllowedMethods();
  allowedMethods.watch(app);
  addExposure(app, parts.exposure);
  addRequestTrace(app, parts);
  addRequestLog(app);
  addRequestMetrics(app, parts);
  // Before the admission, so that a page can also read why it was refused.
  await addCrossOrigin(app, parts.exposure.corsOrigins);
  addAdmission(app, parts);
  addNotFound(app, parts, allowedMethods);
  addJsonBody(app, parts);
  await addOpenApi(app, parts.version);
  addProxiedMethods(app);
  await addWebSockets(app);
  addHealthz(app, parts);
  addMetrics(app, parts);
  addDocs(app, parts);
  addDashboard(app, parts);
  addPreviewOrigin(app, parts);
  addLinkedFile(app, parts);
  await app.register(async (v1: App) => addV1(v1, parts));
  await app.register(async (mcp: App) => addMcpRoute(mcp, parts));
  await app.register(async (account: App) => addAccountRoutes(account, parts));
  await app.ready();
  return { app, tls };
}

function buildTls(pair: TlsPair | undefined): TlsServers | undefined {
  if (pair === undefined) return undefined;
  return new TlsServers({ pair, headersTimeoutMs: HEADERS_DEADLINE_MS, keepAliveTimeoutMs: KEEP_ALIVE_MS });
}

function addV1(v1: App, parts: HttpParts): void {
  addKeyChecks(v1, parts);
  // What the request has changed is committed, events included.
  v1.addHook('onResponse', async ({ method }) => {
    if (!READING.has(method)) parts.events.sequencer.wake();
  });
  addV1Routes(v1, parts);
}

function addMcpRoute(mcp: App, parts: HttpParts): void {
  mcp.addHook('onRequest', async (request) => assertNoForeignPage(request, parts.exposure.corsOrigins));
  addKeyChecks(mcp, parts);
  addMcp(mcp, parts);
}

/** Call before adding routes that need an API key. */
function addKeyChecks(app: App, parts: HttpParts): void {
  app.addHook('onRequest', async (request, reply) => {
    await authenticate(request, reply, parts);
    if (request.routeOptions.config.isUnlimited !== true) limitRate(request, reply, parts);
    checkKeyAccess(request);
  });
  requireKeyAccess(app);
}

/** Counts requests, and refuses them once the service drains. */
function addAdmission(app: App, { openRequests }: Pick<HttpParts, 'openRequests'>): void {
  app.addHook('onRequest', async (request, reply) => {
    if (openRequests.isDraining) {
      reply.header('connection', 'close');
      // The control that has forwarded it sends it again, to the next owner of the runner.
      if (isForwarded(request.raw)) reply.header(TAKING_OVER, '1');
      await discardBody(request.raw);
      throw new AppError('unavailable', 'the service is shutting down; try again');
    }
    openRequests.enter();
    reply.raw.once('close', () => openRequests.leave());
  });
}

/** Refuses unknown routes before the body is read: Fastify has requirements of its own for a QUERY. */
function addNotFound(
  app: App,
  parts: AuthenticationParts & Pick<HttpParts, 'rateLimiter'>,
  allowedMethods: AllowedMethods,
): void {
  const refuse = async (request: FastifyRequest, reply: FastifyReply) => {
    const path = request.url.split('?', 1)[0] ?? '';
    if (path === '/v1' || path.startsWith('/v1/')) {
      await authenticate(request, reply, parts);
      limitRate(request, reply, parts);
    }
    const methods = allowedMethods.of(path).join(', ');
    if (methods !== '') {
      reply.header('allow', methods);
      throw new AppError(
        'method_not_allowed',
        `this path does not support ${request.method}; it supports ${methods}`,
      );
    }
    const shown = withoutToken(path).slice(0, 100);
    throw new AppError('not_found', `there is no ${request.method} ${shown}; see /openapi.json`);
  };
  app.addHook('onRequest', async (request, reply) => {
    if (request.is404) await refuse(request, reply);
  });
  // For an OPTIONS that is not a preflight.
  app.setNotFoundHandler(refuse);
}
