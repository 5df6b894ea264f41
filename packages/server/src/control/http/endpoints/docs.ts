import type { FastifyReply, FastifyRequest } from 'fastify';
import { unpack, type Documentation, type DocumentationFile } from '../../documentation/documentation.ts';
import { acceptsGzip } from '../requests/accepts-gzip.ts';
import type { App } from '../app.ts';
import type { HttpParts } from '../parts.ts';

const ROOT = '/docs';
const YEAR_S = 31_536_000;
/**
 * Pages load only our own files, and none of them has a script or a style inside. So even a page into which someone
 * could write would run nothing.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');
const HEADERS = {
  'content-security-policy': POLICY,
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
  'referrer-policy': 'same-origin',
  vary: 'accept-encoding',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

/** The documentation, for everyone: it needs no key. Without a built documentation there is no such route. */
export function addDocs(app: App, { documentation }: Pick<HttpParts, 'documentation'>): void {
  if (documentation === undefined) return;
  for (const url of [ROOT, `${ROOT}/*`])
    app.route({
      method: ['GET', 'HEAD'],
      url,
      schema: { hide: true },
      handler: async (request, reply) => serve(request, reply, documentation),
    });
}

async function serve(
  request: FastifyRequest,
  reply: FastifyReply,
  documentation: Documentation,
): Promise<FastifyReply> {
  const path = request.url.split('?', 1)[0] ?? '';
  reply.headers(HEADERS);
  const file = documentation.find(path);
  if (file !== undefined) return send(request, reply, file);
  const shorter = path.replace(/\/+$/u, '');
  // Only to a page that exists, so that no part of the request becomes an address elsewhere.
  if (documentation.find(shorter) !== undefined) return reply.redirect(shorter, 308);
  return send(request, reply.code(404), documentation.notFound);
}

async function send(
  request: FastifyRequest,
  reply: FastifyReply,
  file: DocumentationFile,
): Promise<FastifyReply> {
  const isPacked = acceptsGzip(request.headers['accept-encoding']);
  const etag = `"${file.hash}${isPacked ? '-gzip' : ''}"`;
  reply.header('etag', etag).header('cache-control', cacheControl(reply, file));
  if (reply.statusCode === 200 && matches(request.headers['if-none-match'], etag))
    return reply.code(304).send();
  reply.type(file.type);
  if (!isPacked) return reply.send(await unpack(file));
  return reply.header('content-encoding', 'gzip').send(file.compressed);
}

/** Pages are checked at each use, so that an upgrade shows at once; the check is answered with 304. */
function cacheControl({ statusCode }: FastifyReply, { isFixed }: DocumentationFile): string {
  return isFixed && statusCode === 200 ? `public, max-age=${YEAR_S}, immutable` : 'no-cache';
}

function matches(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  const tags = new Set(header.split(',').map((tag) => tag.trim().replace(/^W\//u, '')));
  return tags.has(etag) || tags.has('*');
}
