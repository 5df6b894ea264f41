/** Runs the scenario in a page of headless Chromium, which loads the client from a server of its own origin. */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join, normalize } from 'node:path';
import { Browser } from '../../../../e2e/fixtures/api/browser.ts';
import type { Place } from './scenario.ts';

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
  try {
    await using browser = await Browser.start();
    const page = await browser.open(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    return await page.evaluate(`(async () => {
      const [sdk, { runScenario }] = await Promise.all([import('/dist/index.js'), import('/scenario.js')]);
      return runScenario(sdk, ${JSON.stringify(place)});
    })()`);
  } finally {
    server.close();
  }
}
