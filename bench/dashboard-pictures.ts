/** `npm run bench dashboard-pictures` renders the pictures of the dashboard in docs/images again. */
import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';
import { Browser } from '../e2e/fixtures/api/browser.ts';
import { Visitor } from '../e2e/fixtures/dashboard/visitor.ts';
import { startPrepared } from '../e2e/fixtures/service/prepared-service.ts';

const DIRECTORY = fileURLToPath(new URL('../docs/images/', import.meta.url));
const SIZE = { width: 1280, height: 720 };
/** Until numbers that count have settled. */
const SETTLED_MS = 1500;
const NAMES = ['checkout-agent', 'nightly-eval', 'docs-preview'];

async function render(page: Page, name: string): Promise<void> {
  await page.waitForTimeout(SETTLED_MS);
  await page.screenshot({ path: `${DIRECTORY}${name}.png` });
}

async function growFamily(page: Page): Promise<void> {
  const press = async (name: string): Promise<void> =>
    page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
  await page.getByRole('button', { name: 'Snapshot', exact: true }).click();
  await press('Take snapshot');
  await page.getByRole('dialog', { name: 'Take a snapshot' }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Fork', exact: true }).click();
  await press('Fork');
  await page.getByRole('dialog', { name: 'One child runs' }).waitFor();
}

mkdirSync(DIRECTORY, { recursive: true });
await using service = await startPrepared({ instance: 18 });
await using browser = await Browser.start();
await using visitor = await Visitor.signUp(browser, service);
const { page } = visitor;
await page.setViewportSize(SIZE);
let id = '';
for (const name of NAMES) id = await visitor.createSandbox(name);
const terminal = page.locator('.xterm');
await terminal.getByText('/workspace#').first().waitFor();
await page.keyboard.type('uname -sr; nproc; free -m | head -2; python3 -c "print(6 * 7)"\n');
await page.emulateMedia({ colorScheme: 'dark' });
await render(page, 'dashboard-terminal');
await page.emulateMedia({ colorScheme: 'light' });
await visitor.goTo(`/sandboxes/${id}`);
await growFamily(page);
await visitor.goTo(`/sandboxes/${id}/lineage`);
await render(page, 'dashboard-lineage');
await visitor.goTo('/sandboxes');
await page.getByRole('row', { name: /nightly-eval/u }).waitFor();
await render(page, 'dashboard-sandboxes');
