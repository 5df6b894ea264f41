/** Every page of the dashboard: by axe, in light and dark, on a phone, and with hostile texts in all that has a name. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Page } from 'playwright-core';
import { findBarriers } from '../../packages/server/src/control/testing/watched-page.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { Api } from '../fixtures/api/api.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { assertInert, plantCanaries, type Planted } from '../fixtures/dashboard/canaries.ts';
import { Visitor } from '../fixtures/dashboard/visitor.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 300_000;
const TABS = [
  'overview',
  'terminal',
  'commands',
  'files',
  'ports',
  'metrics',
  'network',
  'lineage',
  'events',
  'audit',
];

describe('the pages of the dashboard', { timeout: TIMEOUT_MS }, () => {
  const resources = new AsyncDisposableStack();
  let browser: Browser;
  let visitor: Visitor;
  let planted: Planted;
  let paths: string[] = [];
  before(async () => {
    const { service } = await shared();
    browser = resources.use(await Browser.start());
    visitor = resources.use(await Visitor.signUp(browser, service));
    planted = await plantCanaries(visitor, new Api(service));
    resources.defer(() => planted.remove());
    paths = [
      '/sandboxes',
      '/sandboxes/new',
      ...TABS.map((tab) => `/sandboxes/${planted.sandboxId}/${tab}`),
      '/history',
      '/snapshots',
      '/disks',
      `/disks/${planted.disk}`,
      '/images',
      '/network',
      '/secrets',
      '/audit',
      '/usage',
      '/webhooks',
      '/keys',
      '/people',
      '/operator',
      '/settings',
      '/network/nothing/here',
    ];
  });
  after(() => resources.disposeAsync());

  async function visit(path: string): Promise<Page> {
    const { page } = visitor;
    await visitor.goTo(path);
    await page.getByRole('heading', { level: 1 }).waitFor();
    const loaded = { step: `loading ${path}`, timeoutMs: 20_000, intervalMs: 50 };
    await pollUntil(loaded, async () => ((await page.locator('.skeleton').count()) === 0 ? true : undefined));
    return page;
  }

  for (const scheme of ['light', 'dark'] as const)
    it(`all pages are readable by everyone in ${scheme}, and keep their policy`, async () => {
      await visitor.page.emulateMedia({ colorScheme: scheme });
      const found: string[] = [];
      for (const path of paths) {
        const page = await visit(path);
        found.push(...(await findBarriers(page)).map((barrier) => `${path}: ${barrier}`));
      }
      assert.deepEqual(found, []);
      assert.deepEqual(visitor.faults, []);
    });

  it('no page is wider than a phone', async () => {
    await visitor.page.setViewportSize({ width: 390, height: 844 });
    const wide: string[] = [];
    for (const path of paths) {
      const page = await visit(path);
      const width = await page.evaluate<number>('document.documentElement.scrollWidth');
      if (width > 390) wide.push(`${path}: ${width} px`);
    }
    await visitor.page.setViewportSize({ width: 1360, height: 860 });
    assert.deepEqual(wide, []);
  });

  it('texts of guests and of other people stay texts', async () => {
    const shown = new Set<string>();
    for (const path of paths) {
      const page = await visit(path);
      await assertInert(page);
      const isShown = await page.evaluate<boolean>(`document.body.innerText.includes('data-canary')`);
      if (isShown) shown.add(path);
    }
    // Otherwise the pages would only have shown nothing of them.
    for (const path of planted.shownOn) assert.ok(shown.has(path), `${path} shows no canary`);
    assert.deepEqual(visitor.faults, []);
  });
});
