/** The manifest that set-up wrote: the installed parts and their paths. */
import { existsSync, readFileSync } from 'node:fs';
import { z } from 'zod';
import { ConfigError } from './config-error.ts';

const Manifest = z.object({
  version: z.literal(1),
  kernel: z.object({ path: z.string() }),
  initramfs: z.object({ path: z.string() }),
  base_image: z.object({ layout_path: z.string(), reference: z.string() }),
  jail: z.object({ path: z.string() }),
  capture: z.object({ path: z.string() }),
  hostctl: z.object({ path: z.string() }),
  blocks: z.object({ path: z.string() }),
  // A checkout without them may share the assets. The service then has no /docs, and no page at /.
  docs: z.object({ path: z.string() }).optional(),
  dashboard: z.object({ path: z.string() }).optional(),
  qemu: z.object({ path: z.string() }),
  tar2sqfs: z.object({ path: z.string() }),
  // Without them guests have no network.
  nft: z.object({ path: z.string() }).default({ path: 'nft' }),
  ip: z.object({ path: z.string() }).default({ path: 'ip' }),
  mke2fs: z.object({ path: z.string() }),
  // Set-up installs none for a service with DATABASE_URL.
  postgres_bin: z.object({ path: z.string() }).default({ path: '/usr/lib/postgresql' }),
});
export type Manifest = z.infer<typeof Manifest>;

export function readManifest(path: string): Manifest {
  if (!existsSync(path)) throw new ConfigError(`${path} is missing: run "npm run setup" first`);
  const parsed = Manifest.safeParse(JSON.parse(readFileSync(path, 'utf8')));
  if (parsed.success) return parsed.data;
  throw new ConfigError(
    `${path} is not of this version (${z.prettifyError(parsed.error)}): run "npm run setup" again`,
  );
}
