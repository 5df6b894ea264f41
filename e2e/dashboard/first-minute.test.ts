/** From the link of an invitation to a command in a terminal of a new sandbox, in a browser. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { findBarriers } from '../../packages/server/src/control/testing/watched-page.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { inviteOwner, Visitor } from '../fixtures/dashboard/visitor.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 180_000;

describe('the first minute in the dashboard', { timeout: TIMEOUT_MS }, () => {
  let browser: Browser;
  before(async () => {
    [browser] = await Promise.all([Browser.start(), shared()]);
  });
  after(() => browser[Symbol.asyncDispose]());

  it('an invited person signs up, creates a sandbox and types into its terminal', async () => {
    const { service } = await shared();
    await using visitor = await Visitor.arrive(browser, service);
    const { page } = visitor;
    await visitor.signUpBy(await inviteOwner(service));
    assert.ok(!page.url().includes('inv_'), 'the invitation is still in the address');
    await page.getByText('No sandbox is running').waitFor();
    await page.getByRole('link', { name: 'Create the first one' }).click();
    await page.getByLabel('Name (optional)').fill('first');
    await page.getByRole('button', { name: 'Create the sandbox' }).click();
    await page.waitForURL(/\/terminal$/u);
    const terminal = page.locator('.xterm');
    await terminal.getByText('/workspace#').first().waitFor();
    await page.keyboard.type('echo "$(uname -s) $((6 * 7))"\n');
    await terminal.getByText('Linux 42').waitFor();
    assert.deepEqual(await findBarriers(page), []);
    assert.deepEqual(visitor.faults, []);
  });
});
