/** The public API: Fastify, its hooks in the order that they run, and the endpoints. */
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { AppError, invalidRequest } from '@coppice/contract';
import Fastify, { LogController, type FastifyBaseLogger, type FastifyRequest } from 'fastify';
import { serializerCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import type { Logger } from 'pino';
import type { z } from 'zod';
import type { TlsPair } from '../../lib/tls/tls-pair.ts';
import type { Credential } from '../auth/authenticator.ts';
import type { App } from './app.ts';
import { addBuildImage } from './endpoints/build-image.ts';
import { addCreatePreview } from './endpoints/create-preview.ts';
import { addCreateRun } from './endpoints/create-run.ts';
import { addCreateSnapshot } from './endpoints/create-snapshot.ts';
import { addCreateTicket } from './endpoints/create-ticket.ts';
import { addDeletePreview } from './endpoints/delete-preview.ts';
import { addDeleteRegistry } from './endpoints/delete-registry.ts';
import { addDeleteRun } from './endpoints/delete-run.ts';
import { addDeleteSnapshot } from './endpoints/delete-snapshot.ts';
import { addDownloadFile } from './endpoints/download-file.ts';
import { addExecStream } from './endpoints/exec-stream.ts';
import { addExecWebSocket } from './endpoints/exec-websocket.ts';
import { addExec } from './endpoints/exec.ts';
import { addForkRun } from './endpoints/fork-run.ts';
import { addGetRun } from './endpoints/get-run.ts';
import { addGetTree } from './endpoints/get-tree.ts';
import { addHealthz } from './endpoints/healthz.ts';
import { addHibernateRun } from './endpoints/hibernate-run.ts';
import { addListFiles } from './endpoints/list-files.ts';
import { addListImages } from './endpoints/list-images.ts';
import { addListPreviews } from './endpoints/list-previews.ts';
import { addListRegistries } from './endpoints/list-registries.ts';
import { addListRuns } from './endpoints/list-runs.ts';
import { addListSnapshots } from './endpoints/list-snapshots.ts';
import { addPatchRun } from './endpoints/patch-run.ts';
import { addPortProxy } from './endpoints/port-proxy.ts';
import { addPreviewOrigin } from './endpoints/preview-origin.ts';
import { addPutRegistry } from './endpoints/put-registry.ts';
import { addRestoreRun } from './endpoints/restore-run.ts';
import { addResumeRun } from './endpoints/resume-run.ts';
import { addRollbackRun } from './endpoints/rollback-run.ts';
import { addShellWebSocket } from './endpoints/shell-websocket.ts';
import { addTerminalWebSocket } from './endpoints/terminal-websocket.ts';
import { addUploadFile } from './endpoints/upload-file.ts';
import { answerError, buildErrorBody, JSON_BODY_BYTES } from './error-mapper.ts';
import { addExposure, TlsServers } from './exposure.ts';
import { addJsonBody } from './json-body.ts';
import { addOpenApi } from './openapi.ts';
import type { HttpParts } from './parts.ts';
import { addProxiedMethods, buildRewrite } from './proxied-route.ts';
import { addRequestLog, readRequestId } from './request-log.ts';
import { addWebSockets } from './web-socket-peer.ts';

/** For a request's head to arrive. Bodies have no common limit: uploads are long. */
const HEADERS_DEADLINE_MS = 30_000;
const KEEP_ALIVE_MS = 75_000;

export interface Server {
  app: App;
  /** Undefined when the API is plain HTTP. */
  tls: TlsServers | undefined;
}

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
    rewriteUrl: buildRewrite(() => parts.previewOrigins),
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    http: { headersTimeout: HEADERS_DEADLINE_MS },
    ...(tls === undefined ? {} : { serverFactory: tls.create }),
    frameworkErrors: (error, request, reply) => void answerError(error, request, reply),
    clientErrorHandler: answerBrokenHttp,
  }).withTypeProvider<ZodTypeProvider>();
  app.setValidatorCompiler(({ schema, httpPart }) => buildValidator(schema as z.ZodType, httpPart));
  app.setSerializerCompiler(serializerCompiler);
  app.setErrorHandler(answerError);
  app.decorateRequest('organizationId', '');
  app.decorateRequest('apiKeyId', '');
  addExposure(app, parts.exposure);
  addAdmission(app, parts);
  addRequestLog(app);
  addJsonBody(app, parts);
  await addOpenApi(app, parts.version);
  addProxiedMethods(app);
  await addWebSockets(app);
  addHealthz(app, parts);
  addPreviewOrigin(app, parts);
  await app.register(async (v1: App) => addV1(v1, parts));
  addNotFound(app, parts);
  await app.ready();
  return { app, tls };
}

function buildTls(pair: TlsPair | undefined): TlsServers | undefined {
  if (pair === undefined) return undefined;
  return new TlsServers({ pair, headersTimeoutMs: HEADERS_DEADLINE_MS, keepAliveTimeoutMs: KEEP_ALIVE_MS });
}

function addV1(v1: App, parts: HttpParts): void {
  v1.addHook('onRequest', (request) => authenticate(request, parts));
  addCreateRun(v1, parts);
  addListRuns(v1, parts);
  addGetRun(v1, parts);
  addDeleteRun(v1, parts);
  addPatchRun(v1, parts);
  addForkRun(v1, parts);
  addHibernateRun(v1, parts);
  addResumeRun(v1, parts);
  addRollbackRun(v1, parts);
  addRestoreRun(v1, parts);
  addGetTree(v1, parts);
  addCreateSnapshot(v1, parts);
  addListSnapshots(v1, parts);
  addDeleteSnapshot(v1, parts);
  addExec(v1, parts);
  addExecStream(v1, parts);
  addExecWebSocket(v1, parts);
  addShellWebSocket(v1, parts);
  addTerminalWebSocket(v1, parts);
  addCreateTicket(v1, parts);
  addPortProxy(v1, parts);
  addCreatePreview(v1, parts);
  addListPreviews(v1, parts);
  addDeletePreview(v1, parts);
  addUploadFile(v1, parts);
  addDownloadFile(v1, parts);
  addListFiles(v1, parts);
  addListImages(v1, parts);
  addBuildImage(v1, parts);
  addPutRegistry(v1, parts);
  addListRegistries(v1, parts);
  addDeleteRegistry(v1, parts);
}

async function authenticate(request: FastifyRequest, parts: Pick<HttpParts, 'authenticate'>): Promise<void> {
  const principal = await parts.authenticate(readCredential(request));
  request.organizationId = principal.organizationId;
  request.apiKeyId = principal.apiKeyId;
}

function readCredential({ headers, params, query, routeOptions }: FastifyRequest): Credential {
  const { authorization } = headers;
  const { credentialInQuery } = routeOptions.config;
  if (authorization !== undefined || credentialInQuery === undefined) return { authorization };
  const { ticket, token } = query as { ticket?: unknown; token?: unknown };
  const { id } = params as { id?: unknown };
  if (typeof ticket === 'string') return { ticket, sandboxId: String(id) };
  const isKeyAllowed = credentialInQuery === 'ticket or key' && typeof token === 'string';
  return { authorization: isKeyAllowed ? `Bearer ${token}` : undefined };
}

/** Every answer carries its request id, and none begins once the service drains. */
function addAdmission(app: App, { openRequests }: Pick<HttpParts, 'openRequests'>): void {
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id);
    if (openRequests.isDraining) {
      reply.header('connection', 'close');
      throw new AppError('unavailable', 'the service is shutting down; try again');
    }
    openRequests.enter();
    reply.raw.once('close', () => openRequests.leave());
  });
}

function addNotFound(app: App, parts: Pick<HttpParts, 'authenticate'>): void {
  app.setNotFoundHandler(async (request) => {
    const path = request.url.split('?', 1)[0] ?? '';
    if (path === '/v1' || path.startsWith('/v1/')) await authenticate(request, parts);
    throw new AppError('not_found', `there is no ${request.method} ${path.slice(0, 100)}; see /openapi.json`);
  });
}

const PART_NAMES: Record<string, string> = {
  body: 'body',
  querystring: 'query',
  params: 'path',
  headers: 'header',
};

function buildValidator(schema: z.ZodType, httpPart: string | undefined) {
  const where = PART_NAMES[httpPart ?? 'body'] ?? 'request';
  return (input: unknown) => {
    const result = schema.safeParse(input);
    return result.success
      ? { value: result.data }
      : { error: invalidRequest(result.error, { where, input }) };
  };
}

/** What is not even HTTP: there is no request to answer, only a socket. */
function answerBrokenHttp(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const isTooLong = error.code === 'HPE_HEADER_OVERFLOW';
  const text = isTooLong ? 'the request headers are over 16 KiB' : 'this is not an HTTP request';
  const body = JSON.stringify(buildErrorBody(new AppError('invalid_request', text), newRequestId()));
  const head = `HTTP/1.1 ${isTooLong ? '431 Request Header Fields Too Large' : '400 Bad Request'}`;
  socket.end(
    `${head}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
  );
}

function newRequestId(): string {
  return `req${randomBytes(10).toString('hex')}`;
}
