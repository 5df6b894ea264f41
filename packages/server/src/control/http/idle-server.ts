import pino from 'pino';
import type { App } from './app.ts';
import type { HttpParts } from './parts.ts';
import { buildServer } from './server.ts';

/** A server that is to be closed again, without having served a request: for what it is made of, and its document. */
export async function buildIdleServer(version: string): Promise<App> {
  const exposure = { hstsSeconds: 0, trustedProxies: [], corsOrigins: [] };
  // No request is served, so no other part is used.
  const { app } = await buildServer({ version, exposure } as unknown as HttpParts, pino({ level: 'silent' }));
  return app;
}
