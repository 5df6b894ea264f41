import { buildIdleServer } from './idle-server.ts';

/**
 * Fastify and its plugins load parts of themselves when a server is built. By then control runs as an account that may
 * not be able to read the checkout, in root's home for example: so a server is built once before.
 */
export async function preloadServer(version: string): Promise<void> {
  const app = await buildIdleServer(version);
  await app.close();
}
