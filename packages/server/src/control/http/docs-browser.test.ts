/** The documentation in a browser: search, keyboard, themes, narrow screens, and without scripts. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Browser } from '../../../../../e2e/fixtures/api/browser.ts';
import { startDocumentationHarness } from '../testing/documentation-harness.ts';
import type { SiteHarness } from '../testing/site-harness.ts';
import { findBarriers, openWatched, type WatchedPage } from '../testing/watched-page.ts';

/** One page of each kind. */
const PAGES = [
  '/docs',
  '/docs/guides',
  '/docs/guides/fork-and-hibernate',
  '/docs/performance',
  '/docs/api',
  '/docs/api/create-sandbox',
  '/docs/api/exec-web-socket',
  '/docs/reference/errors',
];
const WIDE = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };

let site: SiteHarness;
let browser: Browser;
before(async () => {
  [site, browser] = await Promise.all([startDocumentationHarness(), Browser.start()]);
});
after(async () => {
  await browser[Symbol.asyncDispose]();
  await site[Symbol.asyncDispose]();
});

function open(path: string): Promise<WatchedPage> {
  return openWatched(browser, site.harness.address, path);
}

test('a reader searches by keyboard and follows a result', async () => {
  await using watched = await open('/docs');
  const { page, faults } = watched;
  await page.keyboard.press('/');
  const field = page.getByRole('combobox', { name: 'Search' });
  await field.waitFor();
  await page.keyboard.type('roll back a sandbox');
  await page.getByRole('option').first().waitFor();
  const texts = await page.getByRole('option').allTextContents();
  assert.ok(
    texts.some((text) => text.includes('POST /v1/runs/{id}/rollback')),
    texts.join('\n'),
  );
  const first = await page.getByRole('option', { selected: true }).getAttribute('href');
  await page.keyboard.press('ArrowDown');
  const selected = page.getByRole('option', { selected: true });
  const href = await selected.getAttribute('href');
  assert.notEqual(href, first);
  assert.equal(await field.getAttribute('aria-activedescendant'), await selected.getAttribute('id'));
  await page.keyboard.press('Enter');
  await page.waitForURL(`${site.harness.address}${href}`);
  await page.getByRole('heading', { level: 1 }).waitFor();
  assert.deepEqual(faults, []);
});

test('the search says when there is nothing, and closes with Escape', async () => {
  await using watched = await open('/docs/guides/files');
  const { page, faults } = watched;
  await page.getByRole('button', { name: 'Search' }).click();
  await page.keyboard.type('qqzzxxyy <img src=x>');
  await page.getByText('Nothing found').waitFor();
  assert.equal(await page.locator('dialog img').count(), 0);
  assert.deepEqual(await findBarriers(page), []);
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  assert.deepEqual(faults, []);
});

for (const [name, size, colorScheme] of [
  ['light', WIDE, 'light'],
  ['dark', WIDE, 'dark'],
  ['phone', PHONE, 'light'],
] as const)
  test(`pages have no barrier, no error, and fit the screen: ${name}`, async () => {
    for (const path of PAGES) {
      await using watched = await open('/docs/404');
      const { page, faults } = watched;
      await page.setViewportSize(size);
      await page.emulateMedia({ colorScheme });
      await page.goto(`${site.harness.address}${path}`);
      assert.deepEqual(await findBarriers(page), [], path);
      const overflow = await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth');
      assert.ok(overflow <= 0, `${path} is ${overflow} pixels too wide`);
      assert.deepEqual(faults, [], path);
    }
  });

test('the search has no barrier in light, dark and on a phone', async () => {
  for (const [size, colorScheme] of [
    [WIDE, 'light'],
    [WIDE, 'dark'],
    [PHONE, 'dark'],
  ] as const) {
    await using watched = await open('/docs');
    const { page } = watched;
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme });
    await page.getByRole('button', { name: 'Search' }).first().click();
    await page.keyboard.type('fork');
    await page.getByRole('option').first().waitFor();
    assert.deepEqual(await findBarriers(page), [], colorScheme);
  }
});

test('a reader chooses the theme, and the next page keeps it', async () => {
  await using watched = await open('/docs');
  const { page, faults } = watched;
  await page.emulateMedia({ colorScheme: 'light' });
  const background = (): Promise<string> =>
    page.evaluate<string>('getComputedStyle(document.body).backgroundColor');
  const light = await background();
  await page.getByRole('button', { name: /light and dark/u }).click();
  const dark = await background();
  assert.notEqual(dark, light);
  await page.goto(`${site.harness.address}/docs/guides/files`);
  assert.equal(await background(), dark);
  assert.deepEqual(await findBarriers(page), []);
  await page.evaluate('localStorage.clear()');
  assert.deepEqual(faults, []);
});

test('on a phone the menu leads to the pages of the section', async () => {
  await using watched = await open('/docs/guides/files');
  const { page } = watched;
  await page.setViewportSize(PHONE);
  const link = page.getByRole('navigation', { name: 'Pages of this section' }).getByText('Persistent disks');
  assert.equal(await link.isVisible(), false);
  await page.getByRole('button', { name: 'Menu' }).click();
  await link.click();
  await page.waitForURL('**/docs/guides/disks');
});

test('the first tab stop skips to the content', async () => {
  await using watched = await open('/docs/guides/files');
  const { page } = watched;
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate<string>('document.activeElement.id'), 'content');
});

test('an unknown path shows a page with a search that works', async () => {
  await using watched = await open('/docs/guides/nothing');
  const { page, faults } = watched;
  await page.getByRole('heading', { name: 'There is no such page' }).waitFor();
  await page.getByRole('button', { name: 'Search the documentation' }).click();
  await page.keyboard.type('hibernate');
  await page.getByRole('option').first().click();
  await page.waitForURL(/\/docs\/(?!guides\/nothing)/u);
  // A browser reports the status of the page itself.
  assert.deepEqual(
    faults.filter((fault) => !fault.includes('404')),
    [],
  );
});

test('without scripts everything but the search is there', async () => {
  await using page = await browser.openWithoutScripts(`${site.harness.address}/docs/api/create-sandbox`);
  assert.equal(await page.getByRole('button', { name: 'Search' }).count(), 0);
  await page.getByRole('heading', { level: 1, name: 'Create a sandbox' }).waitFor();
  await page.getByText('Commands', { exact: true }).click();
  await page.getByRole('link', { name: /Create command/u }).click();
  await page.waitForURL('**/docs/api/create-command');
  await page.setViewportSize(PHONE);
  await page.getByRole('button', { name: 'Menu' }).click();
  await page.getByRole('link', { name: /Get command$/u }).click();
  await page.waitForURL('**/docs/api/get-command');
});
