/** The dashboard when its session ends, in several tabs, and when sandboxes end while they are watched. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Browser } from '../fixtures/api/browser.ts';
import { Visitor } from '../fixtures/dashboard/visitor.ts';
import type { Service } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 240_000;
/** Within this time open streams learn that their key has ended. */
const ENDS_WITHIN_MS = 10_000;
const ENDED = /status of 401|net::ERR|WebSocket/u;

describe('the dashboard over time', { timeout: TIMEOUT_MS }, () => {
  let browser: Browser;
  let service: Service;
  before(async () => {
    [browser, { service }] = await Promise.all([Browser.start(), shared()]);
  });
  after(() => browser[Symbol.asyncDispose]());

  it('a session that ends asks for the password where the person is, and continues there', async () => {
    await using visitor = await Visitor.signUp(browser, service);
    const { page } = visitor;
    await visitor.goTo('/sandboxes/new');
    await page.getByLabel('Name (optional)').fill('kept');
    const { body } = await visitor.call('GET', '/account/sessions');
    const [session] = body as { id: string }[];
    assert.equal((await visitor.call('DELETE', `/account/sessions/${session?.id}`)).status, 204);
    const dialog = page.getByRole('dialog', { name: 'Sign in again' });
    await dialog.waitFor({ timeout: ENDS_WITHIN_MS });
    await page.keyboard.press('Escape');
    assert.equal(await dialog.isVisible(), true, 'the dialog can be left without signing in');
    await visitor.signIn();
    await dialog.waitFor({ state: 'hidden' });
    assert.equal(await page.getByLabel('Name (optional)').inputValue(), 'kept');
    await page.getByRole('button', { name: 'Small' }).click();
    await page.getByRole('button', { name: 'Create the sandbox' }).click();
    await page.waitForURL(/\/terminal$/u);
    assert.deepEqual(
      visitor.faults.filter((fault) => !ENDED.test(fault)),
      [],
    );
  });

  it('two tabs show the same, and a sign-out in one ends the other', async () => {
    await using visitor = await Visitor.signUp(browser, service);
    const { page } = visitor;
    const tab = await visitor.openTab('/sandboxes');
    await tab.getByText('No sandbox is running').waitFor();
    const id = await visitor.createSandbox('twin');
    const row = tab.getByRole('row', { name: /twin/u });
    await row.getByText('running').waitFor();
    await row.getByRole('link').click();
    await tab.waitForURL(new RegExp(id, 'u'));
    await page.getByRole('button', { name: 'Account of Ada Lovelace' }).click();
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in to Coppice' }).waitFor();
    await tab.getByRole('dialog', { name: 'Sign in again' }).waitFor({ timeout: ENDS_WITHIN_MS });
  });

  it('a sandbox that dies while it is watched says so, in its list, page and terminal', async () => {
    await using visitor = await Visitor.signUp(browser, service);
    const { page } = visitor;
    await visitor.createSandbox('mortal');
    const list = await visitor.openTab('/sandboxes');
    await list.getByRole('row', { name: /mortal/u }).waitFor();
    const terminal = page.locator('.xterm');
    await terminal.getByText('/workspace#').first().waitFor();
    // As the guest's kernel does when it has no other way.
    await page.keyboard.type('echo o > /proc/sysrq-trigger\n');
    await page.getByText(/^(?:destroyed|failed)$/u).waitFor();
    await list.getByText('No sandbox is running').waitFor();
    assert.deepEqual(
      visitor.faults.filter((fault) => !ENDED.test(fault)),
      [],
    );
  });
});
