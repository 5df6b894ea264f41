/** The list of the dashboard in a browser, with ten thousand sandboxes. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Page } from 'playwright-core';
import { Browser } from '../../../../../e2e/fixtures/api/browser.ts';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import { INVITATION, waitFor } from '../testing/control-harness.ts';
import { startDashboardHarness } from '../testing/dashboard-harness.ts';
import { insertHibernated } from '../testing/many-hibernated.ts';
import { AccountClient, PASSWORD } from '../testing/requests/account-client.ts';
import type { SiteHarness } from '../testing/site-harness.ts';
import { spawnControl, type SpawnedControl } from '../testing/controls/spawn-control.ts';
import { openWatched, type WatchedPage } from '../testing/watched-page.ts';

const COUNT = 10_000;
const LAST = 'job-09999';
const MOST_FIRST_ROWS_MS = 2000;
const MOST_TYPING_MS = 200;
const MOST_ROWS = 200;
/** Begins all names. */
const COMMON = 'job-0';
/** After that, each changes the number of matches. */
const KEYS = ['9', '8', '7', '6', 'Backspace', 'Backspace', 'Backspace', 'Backspace', '9', '8', '7', '6'];
/** The first request of the page, before the sign-in, is answered with 401. */
const EXPECTED = /status of 401 .*\/account\/me$/u;

/** Runs in the page: notes how long after each change of the search its result is drawn. */
const NOTE_TIMES = `(() => {
  window.times = [];
  let typedAt = 0;
  document.addEventListener('input', (event) => (typedAt = event.timeStamp), true);
  const note = () => requestAnimationFrame(() => setTimeout(() => window.times.push(performance.now() - typedAt)));
  const count = document.querySelector('.filters [role="status"]');
  new MutationObserver(note).observe(count, { characterData: true, childList: true, subtree: true });
})()`;

const resources = new AsyncDisposableStack();
let site: SiteHarness;
let watched: WatchedPage;
before(async () => {
  site = resources.use(await startDashboardHarness());
  const { harness } = site;
  await using db = harness.openDatabase();
  await insertHibernated(db, COUNT);
  const owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  resources.use(await restart(site));
  const browser = resources.use(await Browser.start());
  watched = resources.use(await openWatched(browser, harness.address, '/sign-in'));
  const { page } = watched;
  await page.getByLabel('E-mail address').fill(owner.email);
  await page.getByLabel('Password').fill(PASSWORD);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('10,000 sandboxes', { exact: true }).waitFor();
});
after(() => resources.disposeAsync());

/** A control knows the sandboxes that are in its database when it starts. */
async function restart({ harness, directory }: SiteHarness): Promise<SpawnedControl> {
  await harness.stopControl();
  const config = { ...harness.config, dashboardDir: directory };
  harness.spawned = await spawnControl(config, { onLog: (line) => harness.logLines.push(line) });
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  return harness.spawned;
}

function listedRows(page: Page) {
  return page.getByRole('table', { name: 'Sandboxes' }).getByRole('rowgroup').getByRole('row');
}

test('the first of ten thousand sandboxes appear within two seconds', async (t) => {
  const { page } = watched;
  const startedAt = performance.now();
  await page.reload({ waitUntil: 'commit' });
  await page.getByRole('row', { name: /job-00000/u }).waitFor();
  const firstMs = performance.now() - startedAt;
  await page.getByText('10,000 sandboxes', { exact: true }).waitFor();
  t.diagnostic(
    `first rows after ${firstMs.toFixed(0)} ms, all after ${(performance.now() - startedAt).toFixed(0)} ms`,
  );
  assert.ok(firstMs < MOST_FIRST_ROWS_MS, `${firstMs.toFixed(0)} ms`);
});

test('each letter of a search filters ten thousand sandboxes within 200 ms', async (t) => {
  const { page } = watched;
  await page.getByLabel('Search sandboxes').fill(COMMON);
  await page.evaluate(NOTE_TIMES);
  const readTimes = (): Promise<number[]> => page.evaluate<number[]>('window.times');
  for (const [index, key] of KEYS.entries()) {
    await page.keyboard.press(key);
    const drawn = { step: `the result of ${key}`, timeoutMs: 10_000, intervalMs: 20 };
    await pollUntil(drawn, async () => ((await readTimes()).length > index ? true : undefined));
  }
  await page.getByRole('row', { name: /job-09876/u }).waitFor();
  const ordered = (await readTimes()).toSorted((one, other) => one - other);
  const median = ordered[Math.floor(ordered.length / 2)] ?? Infinity;
  t.diagnostic(`median of ${ordered.length} changes: ${median.toFixed(0)} ms`);
  assert.ok(median < MOST_TYPING_MS, ordered.map((ms) => ms.toFixed(0)).join(', '));
});

test('the end of the list is one scroll away, and the document has only the rows in view', async () => {
  const { page, faults } = watched;
  await page.getByLabel('Search sandboxes').fill('');
  await page.getByText('10,000 sandboxes', { exact: true }).waitFor();
  assert.ok((await listedRows(page).count()) < MOST_ROWS);
  await page.evaluate('scrollTo(0, document.documentElement.scrollHeight / 2)');
  await page.locator('[aria-rowindex="5001"]').waitFor();
  assert.ok((await listedRows(page).count()) < MOST_ROWS);
  await page.evaluate('scrollTo(0, document.documentElement.scrollHeight)');
  const last = page.getByRole('row', { name: new RegExp(LAST, 'u') });
  await last.waitFor();
  assert.equal(await last.getAttribute('aria-rowindex'), String(COUNT + 1));
  const { height } = page.viewportSize() ?? { height: 0 };
  const box = await last.boundingBox();
  assert.ok(box !== null && box.y >= 0 && box.y + box.height <= height, JSON.stringify(box));
  assert.ok((await listedRows(page).count()) < MOST_ROWS);
  assert.deepEqual(
    faults.filter((fault) => !EXPECTED.test(fault)),
    [],
  );
});
