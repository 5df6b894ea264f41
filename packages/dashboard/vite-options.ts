/** How Vite builds and serves the dashboard. */
import { fileURLToPath } from 'node:url';
import type { InlineConfig } from 'vite';
import { XTERM_DOCUMENT } from './xterm-document.ts';

export const VITE_OPTIONS: InlineConfig = {
  root: fileURLToPath(new URL('.', import.meta.url)),
  configFile: false,
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  plugins: [XTERM_DOCUMENT],
  // So that the plugin sees it in development as well.
  optimizeDeps: { exclude: ['@xterm/xterm'] },
  build: {
    target: 'es2022',
    // Files of their own: the policy of the page allows no `data:` address.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    emptyOutDir: true,
    // One script for all that the first page needs: many small ones are more bytes, and more requests.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: 'shell', tags: ['$initial'] }] } } },
  },
};
