import pino from 'pino';
import type { App } from './app.ts';
import type { HttpParts } from './parts.ts';
import { buildServer } from './server.ts';

/** Builds a server that serves no request: it loads its modules, and can describe itself. The caller closes it. */
export async function buildIdleServer(version: string): Promise<App> {
  const exposure = { hstsSeconds: 0, trustedProxies: [], corsOrigins: [] };
  // No request is served, so no other part is used.
  const { app } = await buildServer({ version, exposure } as unknown as HttpParts, pino({ level: 'silent' }));
  return app;
}
