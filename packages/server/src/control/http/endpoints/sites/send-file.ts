import type { FastifyReply, FastifyRequest } from 'fastify';
import { unpack, type SiteFile } from '../../../static-site/static-site.ts';
import { acceptsGzip } from '../../requests/accepts-gzip.ts';

const YEAR_S = 31_536_000;
/** Directives that the policies of all sites have. Each site adds its sources. */
const COMMON_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
];

/**
 * Builds the headers of all answers of a site. Pages load only our own files, and none of them has a script or a style
 * inside. So even a page into which someone could write would run nothing.
 */
export function buildSiteHeaders({
  sources,
  permissions,
}: {
  /** Directives beside the common ones. */
  sources: readonly string[];
  /** Permissions beside those that no site has. */
  permissions: readonly string[];
}): Record<string, string> {
  return {
    'content-security-policy': [...COMMON_POLICY, ...sources].join('; '),
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'permissions-policy': ['camera=()', 'geolocation=()', 'microphone=()', ...permissions].join(', '),
    'referrer-policy': 'same-origin',
    vary: 'accept-encoding',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
  };
}

/** Sends a file with the status of `reply`, or 304 to a client that has it. The caller sets the headers of its site. */
export async function sendFile(
  request: FastifyRequest,
  reply: FastifyReply,
  file: SiteFile,
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
function cacheControl({ statusCode }: FastifyReply, { isFixed }: SiteFile): string {
  return isFixed && statusCode === 200 ? `public, max-age=${YEAR_S}, immutable` : 'no-cache';
}

function matches(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  const tags = new Set(header.split(',').map((tag) => tag.trim().replace(/^W\//u, '')));
  return tags.has(etag) || tags.has('*');
}
