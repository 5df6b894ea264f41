import { buildIdleServer } from './idle-server.ts';

/**
 * Builds a server once, to load its modules. Fastify and its plugins load parts of themselves only when a server is
 * built. By then control runs as an account that may be unable to read the checkout, for example in root's home.
 */
export async function preloadServer(version: string): Promise<void> {
  const app = await buildIdleServer(version);
  await app.close();
}
