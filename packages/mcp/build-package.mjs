/**
 * Builds the published program into `dist`: one file with the client in it. The workspace's packages have no releases
 * of their own that this one could depend on; those of the registry stay dependencies.
 */
import { rm } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const path = (/** @type {string} */ name) => fileURLToPath(new URL(name, import.meta.url));

await rm(path('dist'), { recursive: true, force: true });
const bundle = await rolldown({
  input: path('src/main.ts'),
  platform: 'node',
  external: [/^@modelcontextprotocol\//u, /^zod(?:\/|$)/u],
  transform: { target: 'node20' },
  logLevel: 'warn',
});
try {
  await bundle.write({ file: path('dist/main.js'), format: 'esm', codeSplitting: false });
} finally {
  await bundle.close();
}
