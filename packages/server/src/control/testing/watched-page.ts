/** A page in a browser that records its faults, for tests of the sites that control serves. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import type { Browser } from '../../../../../e2e/fixtures/api/browser.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Their content comes from the page itself. */
const LOCAL_SCHEMES: ReadonlySet<string> = new Set(['about:', 'blob:']);

export interface WatchedPage extends AsyncDisposable {
  page: Page;
  /** Errors of the page, violations of its policy, and requests that left the service. */
  faults: string[];
}

/** Opens a page of a service at `address`, such as `http://127.0.0.1:8080`. */
export async function openWatched(browser: Browser, address: string, path: string): Promise<WatchedPage> {
  const page = await browser.open('about:blank');
  const faults = watchPage(page, address);
  await page.goto(`${address}${path}`);
  return { page, faults, [Symbol.asyncDispose]: () => page.close() };
}

/** Returns the list to which the faults of a page are added. */
export function watchPage(page: Page, address: string): string[] {
  const faults: string[] = [];
  // Chromium also reports violations of the policy as errors.
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type()))
      faults.push(`${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', (error) => faults.push(String(error)));
  const own = new Set([address, address.replace(/^http/u, 'ws')]);
  const watch = (url: string): void => {
    const { protocol, origin } = new URL(url);
    if (!LOCAL_SCHEMES.has(protocol) && !own.has(origin)) faults.push(`requested ${url}`);
  };
  page.on('request', (request) => watch(request.url()));
  page.on('websocket', (socket) => watch(socket.url()));
  return faults;
}

interface Finding {
  id: string;
  impact: string | null;
  nodes: { html: string }[];
}

/** Returns what axe finds serious. The page's policy binds the page, not this script, which the browser runs for us. */
export async function findBarriers(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const violations = await page.evaluate<Finding[]>('axe.run().then(({ violations }) => violations)');
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`);
}
