/** The dashboard while the service is killed and comes back. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { findFreePort } from '../../packages/server/src/control/testing/free-port.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { Visitor } from '../fixtures/dashboard/visitor.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const TIMEOUT_MS = 240_000;
const OUTAGE = 'The service cannot be reached.';

describe('the dashboard during an outage', { timeout: TIMEOUT_MS }, () => {
  const resources = new AsyncDisposableStack();
  let browser: Browser;
  let service: Service;
  before(async () => {
    // A page finds the service again only at the same address.
    const env = { COPPICE_LISTEN: `127.0.0.1:${await findFreePort()}` };
    [service, browser] = await Promise.all([startPrepared({ instance: 18, env }), Browser.start()]);
    resources.use(service);
    resources.use(browser);
  });
  after(() => resources.disposeAsync());

  it('the page stays while the service is killed, and continues by itself', async () => {
    await using visitor = await Visitor.signUp(browser, service);
    const { page } = visitor;
    await visitor.createSandbox('lasting');
    await visitor.goTo('/sandboxes');
    const row = page.getByRole('row', { name: /lasting/u });
    await row.getByText('running').waitFor();
    const banner = page.getByText(OUTAGE);
    const seen = banner.waitFor();
    await Promise.all([service.killRole('control'), seen]);
    assert.equal(await row.isVisible(), true, 'the last known state is gone');
    await banner.waitFor({ state: 'hidden' });
    // Events arrive again: a sandbox that another tab creates appears.
    const tab = await visitor.openTab('/sandboxes/new');
    await tab.getByLabel('Name (optional)').fill('later');
    await tab.getByRole('button', { name: 'Small' }).click();
    await tab.getByRole('button', { name: 'Create the sandbox' }).click();
    await page.getByRole('row', { name: /later/u }).waitFor();
  });
});
