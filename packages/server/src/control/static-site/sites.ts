/** The sites that control serves. A service without them still serves everything else, so a fault is only logged. */
import type { Logger } from 'pino';
import type { ControlConfig } from '../control-config.ts';
import { readSite, type StaticSite } from './static-site.ts';

/** The page of the documentation for unknown paths. */
export const DOCS_NOT_FOUND = '/docs/404';
/** The document of the dashboard, which is the same on all its pages. */
export const DASHBOARD_HOME = '/';
export const DASHBOARD_ASSETS = '/assets/';

/** First parts of the service's own paths: a file of the dashboard must not hide one. */
export const RESERVED_NAMES: ReadonlySet<string> = new Set([
  '.well-known',
  'account',
  'docs',
  'files',
  'healthz',
  'mcp',
  'metrics',
  'openapi.json',
  'v1',
]);

export interface Sites {
  /** Served below `/docs`. */
  documentation: StaticSite | undefined;
  /** Served at `/`. */
  dashboard: StaticSite | undefined;
}

export const NO_SITES: Sites = { documentation: undefined, dashboard: undefined };

/** Reads the sites of a configuration. Those that set-up could not build are absent. */
export function loadSites(
  { documentationDir, dashboardDir }: Pick<ControlConfig, 'documentationDir' | 'dashboardDir'>,
  log: Logger,
): Sites {
  return {
    documentation: load(documentationDir, log, {
      read: readDocumentation,
      fault: 'the documentation cannot be read: /docs does not exist',
    }),
    dashboard: load(dashboardDir, log, {
      read: readDashboard,
      fault: 'the dashboard cannot be read: there is no page at /',
    }),
  };
}

function load(
  directory: string | undefined,
  log: Logger,
  { read, fault }: { read: (directory: string) => StaticSite; fault: string },
): StaticSite | undefined {
  if (directory === undefined) return undefined;
  try {
    return read(directory);
  } catch (error) {
    log.warn({ err: error, directory }, fault);
    return undefined;
  }
}

function readDocumentation(directory: string): StaticSite {
  const site = readSite(directory, '/docs/assets/');
  site.get(DOCS_NOT_FOUND);
  return site;
}

function readDashboard(directory: string): StaticSite {
  const site = readSite(directory, DASHBOARD_ASSETS);
  site.get(DASHBOARD_HOME);
  const hiding = site.paths.find((path) => RESERVED_NAMES.has(path.split('/')[1] ?? ''));
  if (hiding !== undefined) throw new Error(`its file ${hiding} would hide a path of the service`);
  return site;
}
