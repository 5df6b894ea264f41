/** Costs in the dashboard: what a sandbox costs so far, and a budget that is reached while a person looks at it. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Browser } from '../fixtures/api/browser.ts';
import { OwnedSandbox } from '../fixtures/dashboard/owned-sandbox.ts';
import type { Service } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 180_000;

describe('costs in the dashboard', { timeout: TIMEOUT_MS }, () => {
  let browser: Browser;
  let service: Service;
  before(async () => {
    [browser, { service }] = await Promise.all([Browser.start(), shared()]);
  });
  after(() => browser[Symbol.asyncDispose]());

  it('a budget is set, reached by a sandbox that runs, raised and deleted', async () => {
    await using sandbox = await OwnedSandbox.create(browser, service, 'spends');
    const { visitor, page } = sandbox;
    await visitor.goTo('/usage');
    const card = page.locator('section').filter({ has: page.getByRole('heading', { name: 'Budgets' }) });
    await card.getByText('No budget is set.').waitFor();

    await card.getByRole('button', { name: 'New budget' }).click();
    const dialog = page.getByRole('dialog', { name: 'New budget' });
    const set = dialog.getByRole('button', { name: 'Set budget' });
    assert.equal(await set.isEnabled(), false, 'a budget without an amount');
    await dialog.getByLabel('US dollars a month').fill('1,000');
    await dialog.getByText('Write an amount from 0.01').waitFor();
    await dialog.getByLabel('US dollars a month').fill('0.01');
    await dialog.getByLabel('Alerts at percent').fill('1, half');
    await dialog.getByText('Write up to 10 whole numbers').waitFor();
    await dialog.getByLabel('Alerts at percent').fill('1');
    await set.click();
    // The page is not touched: the event of the budget brings its state.
    await card.getByText('1 % reached').or(card.getByText('over budget')).first().waitFor();
    await card.getByText('Every alert was reported.').waitFor();

    await card.getByRole('button', { name: /^Actions for the budget/u }).click();
    await page.getByRole('menuitem', { name: 'Change' }).click();
    const change = page.getByRole('dialog', { name: /^Budget of/u });
    assert.equal(await change.getByLabel('US dollars a month').inputValue(), '0.01');
    await change.getByLabel('US dollars a month').fill('250');
    await change.getByLabel('Alerts at percent').fill('80 100');
    await change.getByRole('button', { name: 'Set budget' }).click();
    await card.getByText('Next alert at 80 %.').waitFor();
    await card.getByText('of $250.00').waitFor();

    await visitor.goTo('/audit');
    await page.getByText(/Set the budget of the organization to \$250/u).waitFor();
    await visitor.goTo('/usage');
    await card.getByRole('button', { name: /^Actions for the budget/u }).click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await page.getByRole('button', { name: 'Delete budget' }).click();
    await card.getByText('No budget is set.').waitFor();
    assert.deepEqual(visitor.faults, []);
  });
});
