import type { FastifyReply, FastifyRequest } from 'fastify';
import { DOCS_NOT_FOUND } from '../../../static-site/sites.ts';
import type { StaticSite } from '../../../static-site/static-site.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { buildSiteHeaders, sendFile } from './send-file.ts';

const ROOT = '/docs';
const HEADERS = buildSiteHeaders({ sources: ["img-src 'self'"], permissions: [] });

/** The documentation, for everyone: it needs no key. Without a built documentation there is no such route. */
export function addDocs(app: App, { documentation }: Pick<HttpParts, 'documentation'>): void {
  if (documentation === undefined) return;
  for (const url of [ROOT, `${ROOT}/*`])
    app.route({
      method: ['GET', 'HEAD'],
      url,
      schema: { hide: true },
      config: { isUntraced: true },
      handler: async (request, reply) => serve(request, reply, documentation),
    });
}

async function serve(
  request: FastifyRequest,
  reply: FastifyReply,
  documentation: StaticSite,
): Promise<FastifyReply> {
  const path = request.url.split('?', 1)[0] ?? '';
  reply.headers(HEADERS);
  const file = documentation.find(path);
  if (file !== undefined) return sendFile(request, reply, file);
  const shorter = path.replace(/\/+$/u, '');
  // Only to a page that exists, so that no part of the request becomes an address elsewhere.
  if (documentation.find(shorter) !== undefined) return reply.redirect(shorter, 308);
  return sendFile(request, reply.code(404), documentation.get(DOCS_NOT_FOUND));
}
