import { renderOpenApi } from './reference-docs.ts';

/**
 * Fastify and its plugins load parts of themselves at their first use. By then control runs as an account that may not
 * be able to read the checkout, in root's home for example: so the whole server is built once before.
 */
export async function preloadServer(version: string): Promise<void> {
  await renderOpenApi(version);
}
