import { AppError } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { PREVIEW_COOKIE } from '../../../ports/forwarded-headers.ts';
import type { GuestPort } from '../../../ports/port-agent.ts';
import { PREVIEW_LINK_PATH } from '../../../ports/previews.ts';
import type { App } from '../../app.ts';
import { endOf, endWithKey } from '../../access/end-with-key.ts';
import type { HttpParts } from '../../parts.ts';
import { PREVIEW_ROUTE, PROXIED_METHODS, toExchange, unreachable } from '../../access/proxied-route.ts';
import { readCookie } from '../../requests/read-cookie.ts';

type Parts = Pick<
  HttpParts,
  'sandboxes' | 'forwarder' | 'openRequests' | 'previews' | 'previewOrigins' | 'keyEnds'
>;

/** Serves all requests under the origin of a port. No API key counts here, only the cookie of a preview link. */
export function addPreviewOrigin(app: App, parts: Parts): void {
  app.route({
    method: PROXIED_METHODS,
    url: PREVIEW_ROUTE,
    schema: { hide: true },
    onRequest: async (request, reply) => {
      const target = parts.previewOrigins.find(request.headers.host);
      if (target === undefined) throw new AppError('not_found', 'this is not the origin of a sandbox');
      const visit = { request, reply, target, parts };
      const [path, query] = request.originalUrl.split('?', 2);
      if (path !== PREVIEW_LINK_PATH) return pass(visit);
      return openLink(visit, new URLSearchParams(query).get('token') ?? '');
    },
    handler: unreachable,
  });
}

interface Visit {
  request: FastifyRequest;
  reply: FastifyReply;
  target: GuestPort;
  parts: Parts;
}

/** Moves the token into a cookie, so that the guest's page has it neither in its address nor in a `Referer`. */
async function openLink({ request, reply, target, parts }: Visit, token: string): Promise<FastifyReply> {
  if (request.method !== 'GET' && request.method !== 'HEAD')
    throw new AppError('invalid_request', 'a preview link is opened with GET');
  const { expires_at } = await parts.previews.open(token, target);
  const maxAgeS = Math.max(0, Math.floor((expires_at - Date.now()) / 1000));
  const isSecure = parts.previewOrigins.build(target).startsWith('https:');
  const cookie = `${PREVIEW_COOKIE}=${token}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${maxAgeS}`;
  return reply
    .header('set-cookie', isSecure ? `${cookie}; Secure` : cookie)
    .header('cache-control', 'no-store')
    .header('referrer-policy', 'no-referrer')
    .redirect('/', 303);
}

async function pass({ request, reply, target, parts }: Visit): Promise<FastifyReply> {
  const { sandboxes, openRequests, forwarder, previews } = parts;
  const token = readCookie(request.headers.cookie, PREVIEW_COOKIE);
  if (token === undefined)
    throw new AppError(
      'unauthorized',
      'this page needs a preview link: open the link that you received first',
    );
  const { organization_id, api_key_id: apiKeyId, reach } = await previews.open(token, target);
  if (apiKeyId !== null) endWithKey(request, reply, { keyEnds: parts.keyEnds, apiKeyId, reach });
  request.organizationId = organization_id;
  assertOwnPage(request.headers.origin, { target, parts });
  const driver = await sandboxes.getDriver(reach, target.id);
  const exchange = {
    ...toExchange(request, reply),
    target,
    path: request.originalUrl,
    ownOrigin: false,
    added: [],
    over: endOf(request, openRequests),
  };
  await openRequests.stream(organization_id, () => driver.use(() => forwarder.forward(exchange)));
  return reply.hijack();
}

/** Browsers send the cookie for any page, but a page of another origin must not send or connect for its visitor. */
function assertOwnPage(origin: string | undefined, { target, parts }: Pick<Visit, 'target' | 'parts'>): void {
  if (origin === undefined || parts.previewOrigins.isOwn(origin, target.id)) return;
  throw new AppError('forbidden_origin', `a page of ${origin.slice(0, 200)} may not use this preview`);
}
