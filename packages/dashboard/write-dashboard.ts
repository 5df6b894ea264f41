/** Run `node packages/dashboard/write-dashboard.ts DIRECTORY` to build the files of the dashboard; set-up runs it, too. */
import { mkdtempSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';
import { PAGES } from './src/app/pages.ts';
import { VITE_OPTIONS } from './vite-options.ts';

const DOCUMENT = 'index.html';

/** Builds into a directory. The service sends the files as they are, compressed; each page is the same document. */
async function writeDashboard(directory: string): Promise<void> {
  const built = mkdtempSync(join(tmpdir(), 'coppice-dashboard-'));
  try {
    await build({ ...VITE_OPTIONS, logLevel: 'warn', build: { ...VITE_OPTIONS.build, outDir: built } });
    for (const entry of readdirSync(built, { withFileTypes: true, recursive: true })) {
      if (!entry.isFile()) continue;
      const file = join(entry.parentPath, entry.name);
      const packed = gzipSync(readFileSync(file), { level: 9 });
      const path = relative(built, file);
      const names = path === DOCUMENT ? [DOCUMENT, ...PAGES.map((page) => `${page}.html`)] : [path];
      for (const name of names) write(join(directory, `${name}.gz`), packed);
    }
  } finally {
    rmSync(built, { recursive: true, force: true });
  }
}

function write(file: string, content: Buffer): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o755 });
  writeFileSync(file, content, { mode: 0o644 });
}

const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error('usage: write-dashboard.ts DIRECTORY');
await writeDashboard(directory);
