import Fastify from 'fastify';
import type { Logger } from 'pino';

/**
 * Fastify loads parts of itself at their first use. By then control runs as an account that may not be able to read the
 * checkout, in root's home for example: so they are used once before.
 */
export async function preloadFastify(log: Logger): Promise<void> {
  const app = Fastify({ loggerInstance: log });
  app.get('/', () => ({}));
  await app.ready();
  await app.close();
}
