/** The dashboard in a browser: its pages keep the policy that they are sent with. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Browser } from '../../../../../e2e/fixtures/api/browser.ts';
import { PAGES } from '../../../../dashboard/src/app/pages.ts';
import { startDashboardHarness } from '../testing/dashboard-harness.ts';
import type { SiteHarness } from '../testing/site-harness.ts';
import { openWatched } from '../testing/watched-page.ts';

/** Runs in the page. The service refuses the socket, which it can do only once it has the request. */
const CONNECT = `(url) => new Promise((resolve) => {
  document.addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective), { once: true });
  const socket = new WebSocket(url);
  socket.addEventListener('open', () => resolve('open'));
  socket.addEventListener('close', () => setTimeout(() => resolve('refused'), 200));
})`;
let site: SiteHarness;
let browser: Browser;
before(async () => {
  [site, browser] = await Promise.all([startDashboardHarness(), Browser.start()]);
});
after(async () => {
  await browser[Symbol.asyncDispose]();
  await site[Symbol.asyncDispose]();
});

test('pages draw themselves, keep their policy, and request nothing elsewhere', async () => {
  for (const path of ['/', ...PAGES.map((page) => `/${page}`), '/sandboxes/run0123456789abcdef0123']) {
    await using watched = await openWatched(browser, site.harness.address, path);
    await watched.page.locator('#app > *').first().waitFor();
    const faults = watched.faults.filter((fault) =>
      /Content Security|Trusted|^requested|is not/u.test(fault),
    );
    assert.deepEqual(faults, [], path);
  }
});

test('the policy lets a page open a WebSocket to its own service, and to no other', async () => {
  await using watched = await openWatched(browser, site.harness.address, '/');
  const { page, faults } = watched;
  const connect = (url: string): Promise<string> => page.evaluate<string>(`(${CONNECT})('${url}')`);
  const own = site.harness.address.replace(/^http/u, 'ws');
  assert.equal(await connect(`${own}/v1/nothing`), 'refused');
  assert.deepEqual(
    faults.filter((fault) => fault.includes('Content Security')),
    [],
  );
  assert.equal(await connect('ws://127.0.0.2:9/'), 'connect-src');
  assert.equal(faults.filter((fault) => fault.includes('Content Security')).length > 0, true);
});
