import { AppError } from '@coppice/contract';
import { DASHBOARD_ASSETS, DASHBOARD_HOME } from '../../../static-site/sites.ts';
import { isPage, type SiteFile } from '../../../static-site/static-site.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { buildSiteHeaders, sendFile } from './send-file.ts';

/** Pages show downloaded files as pictures, and copy keys. WebSockets of the own origin are of 'self', too. */
const HEADERS = buildSiteHeaders({
  sources: ["img-src 'self' blob:", "font-src 'self'"],
  permissions: ['clipboard-write=(self)'],
});

/**
 * The dashboard, for everyone: its calls need a session. A page answers all paths below its own, too: its script finds
 * out the object that a path names. Without a built dashboard there is no such route.
 */
export function addDashboard(app: App, { dashboard }: Pick<HttpParts, 'dashboard'>): void {
  if (dashboard === undefined) return;
  const [assets, others] = partition(dashboard.paths, (path) => path.startsWith(DASHBOARD_ASSETS));
  for (const path of others) {
    const file = dashboard.get(path);
    addFile(app, path, () => file);
    if (isPage(path) && path !== DASHBOARD_HOME) addFile(app, `${path}/*`, () => file);
  }
  // One route for all: their names change with each build.
  if (assets.length > 0) addFile(app, `${DASHBOARD_ASSETS}*`, (path) => dashboard.find(path));
}

function addFile(app: App, url: string, find: (path: string) => SiteFile | undefined): void {
  app.route({
    method: ['GET', 'HEAD'],
    url,
    schema: { hide: true },
    config: { isUntraced: true },
    handler: async (request, reply) => {
      const path = request.url.split('?', 1)[0] ?? '';
      const file = find(path);
      if (file === undefined)
        throw new AppError('not_found', `the dashboard has no file ${path.slice(0, 100)}`);
      return sendFile(request, reply.headers(HEADERS), file);
    },
  });
}

function partition<T>(items: readonly T[], accept: (item: T) => boolean): [T[], T[]] {
  return [items.filter(accept), items.filter((item) => !accept(item))];
}
