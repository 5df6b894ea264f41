/** Runs the scenario in a page of headless Chromium, which loads the client from a server of its own origin. */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, normalize } from 'node:path';
import { chromium } from 'playwright-core';
import type { Place } from './scenario.ts';

const EXECUTABLE = '/usr/bin/chromium';
const PATIENCE_MS = 120_000;
// Chromium as root cannot have its sandbox.
const ARGUMENTS = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'];

/** `directory` has `dist` and `scenario.js`. */
export async function runInBrowser(directory: string, place: Place): Promise<unknown> {
  const server = createServer((request, response) => {
    const path = normalize(request.url ?? '/');
    if (!path.endsWith('.js')) {
      response.setHeader('content-type', 'text/html').end('<!doctype html>');
      return;
    }
    readFile(join(directory, path)).then(
      (source) => response.setHeader('content-type', 'text/javascript').end(source),
      () => response.writeHead(404).end(),
    );
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const profile = mkdtempSync(join(tmpdir(), 'coppice-browser-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: EXECUTABLE,
    headless: true,
    args: ARGUMENTS,
    timeout: PATIENCE_MS,
  });
  try {
    const page = await context.newPage();
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    return await page.evaluate(`(async () => {
      const [sdk, { runScenario }] = await Promise.all([import('/dist/index.js'), import('/scenario.js')]);
      return runScenario(sdk, ${JSON.stringify(place)});
    })()`);
  } finally {
    await context.close();
    server.close();
    rmSync(profile, { recursive: true, force: true });
  }
}
