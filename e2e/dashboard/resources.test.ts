/** Disks, images, registries and webhooks, as a person uses them in the dashboard. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { Visitor } from '../fixtures/dashboard/visitor.ts';
import { pushTinyImage } from '../fixtures/images/tiny-image.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 240_000;
/** A VM that is emulated prepares an image slowly. */
const PATIENCE_MS = 120_000;
const IMAGE = 'e2e/dashboard:1';
const REGISTRY = 'registry.example.test';
const PASSWORD = 'token-that-no-page-shows';
/**
 * The refusal to delete a disk in use, and what a page hears that reads its disk again on the event of the deletion, which may
 * come before the answer that lets it leave.
 */
const EXPECTED = /status of 409|status of 404 .*\/v1\/disks\/(?:copy|data)$/u;

describe('resources in the dashboard', { timeout: TIMEOUT_MS }, () => {
  const resources = new AsyncDisposableStack();
  let visitor: Visitor;
  let page: Page;
  before(async () => {
    const [browser, { service, registry }] = await Promise.all([Browser.start(), shared()]);
    resources.use(browser);
    await pushTinyImage(registry, { name: IMAGE, programs: ['/bin/sh'] });
    visitor = resources.use(await Visitor.signUp(browser, service));
    page = visitor.page;
  });
  after(() => resources.disposeAsync());

  function checkFaults(): void {
    assert.deepEqual(
      visitor.faults.filter((fault) => !EXPECTED.test(fault)),
      [],
    );
  }

  it('a disk is made, used by a sandbox, kept in a snapshot, forked, and deleted when it is free', async () => {
    await visitor.goTo('/disks');
    await page.getByRole('button', { name: 'Create the first one' }).click();
    const making = page.getByRole('dialog', { name: 'New disk' });
    await making.getByLabel('Name').fill('data');
    await making.getByLabel('Size in GB').fill('1');
    await making.getByRole('button', { name: 'Create disk' }).click();
    await page.getByText('Disk data is ready.').waitFor();
    await page.getByRole('row', { name: /data/u }).getByRole('link').click();
    await page.getByRole('link', { name: 'New sandbox' }).click();
    assert.equal(await page.getByLabel('Persistent disk').inputValue(), 'data');
    await page.getByRole('button', { name: 'Small' }).click();
    await page.getByRole('button', { name: 'Create the sandbox' }).click();
    await page.waitForURL(/\/terminal$/u);
    await page.locator('.xterm').getByText('/workspace#').first().waitFor();
    await page.keyboard.type('echo kept > kept && sync && df -h . | tail -1\n');
    await page.locator('.xterm').getByText('% /workspace').first().waitFor();
    const id = /run[0-9a-f]+/u.exec(page.url())?.[0] ?? '';

    await visitor.goTo('/disks/data');
    await page.getByRole('link', { name: id }).waitFor();
    await page.getByRole('button', { name: 'Snapshot', exact: true }).click();
    const taking = page.getByRole('dialog', { name: 'Snapshot of data' });
    await taking.getByLabel('Name').fill('first');
    await taking.getByRole('button', { name: 'Take snapshot' }).click();
    await page.getByRole('button', { name: 'Actions for snapshot first' }).waitFor();
    await page.getByRole('button', { name: 'Fork', exact: true }).click();
    const forking = page.getByRole('dialog', { name: 'Fork data' });
    await forking.getByLabel('Name of the new disk').fill('copy');
    await forking.getByRole('button', { name: 'Fork' }).click();
    await page.waitForURL(/\/disks\/copy$/u);
    await page.getByRole('heading', { name: 'copy', level: 1 }).waitFor();
    await deleteShown(page);
    await page.waitForURL(/\/disks$/u);

    await page.getByRole('row', { name: /data/u }).getByRole('link', { name: 'data' }).click();
    await page.getByRole('heading', { name: 'data', level: 1 }).waitFor();
    const refused = await deleteShown(page);
    const reason = await refused.getByRole('alert').innerText();
    assert.match(reason, new RegExp(id, 'u'));
    await refused.getByRole('button', { name: 'Cancel' }).click();
    await destroySandbox(visitor, id);
    await page.getByText('available', { exact: true }).waitFor();
    await deleteShown(page);
    await page.getByText('There is no disk yet').waitFor();
    checkFaults();
  });

  it('an image is prepared with its progress, and another is built from a Dockerfile with its log', async () => {
    await visitor.goTo('/images');
    await page.getByRole('button', { name: 'Prepare an image' }).click();
    const preparing = page.getByRole('dialog', { name: 'Prepare an image' });
    await preparing.getByLabel('Image').fill(IMAGE);
    await preparing.getByRole('button', { name: 'Prepare' }).click();
    await preparing.getByRole('status').getByText('The service continues when you close this.').waitFor();
    await page.getByText(`${IMAGE} is ready.`).waitFor({ timeout: PATIENCE_MS });
    const prepared = page.getByRole('row', { name: new RegExp(IMAGE, 'u') });
    await prepared.getByText('ready').waitFor();

    await page.getByRole('link', { name: 'Builds' }).click();
    await page.getByRole('button', { name: 'Start the first build' }).click();
    const building = page.getByRole('dialog', { name: 'New build' });
    await building.getByLabel('Name of the image').fill('dashboard:1');
    await building
      .getByLabel('Dockerfile')
      .fill(`FROM ${BASE_IMAGE}\nRUN echo "made $((6 * 7))" | tee /made\nENV MADE=yes\n`);
    await building.getByRole('button', { name: 'Start build' }).click();
    await page.waitForURL(/\/images\/builds\/[^/]+$/u);
    const log = page.getByRole('log');
    await log.getByText('made 42', { exact: true }).waitFor({ timeout: PATIENCE_MS });
    await page.getByText('done', { exact: true }).waitFor({ timeout: PATIENCE_MS });
    await log.getByText('The build is running').waitFor({ state: 'detached' });
    await page
      .getByText(/built\/dashboard:1@sha256:/u)
      .first()
      .waitFor();
    checkFaults();
  });

  it('the login of a registry is stored, never shown, and deleted', async () => {
    await visitor.goTo('/images/registries');
    await page.getByRole('button', { name: 'Store a login' }).click();
    const login = page.getByRole('dialog', { name: 'New login' });
    await login.getByLabel('Registry').fill(REGISTRY);
    await login.getByLabel('User').fill('robot');
    await login.getByLabel('Password or token', { exact: true }).fill(PASSWORD);
    await login.getByRole('button', { name: 'Store' }).click();
    const row = page.getByRole('row', { name: new RegExp(REGISTRY, 'u') });
    await row.getByText('robot').waitFor();
    assert.equal((await page.content()).includes(PASSWORD), false);
    await row.getByRole('button', { name: `Actions for ${REGISTRY}` }).click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await page.getByRole('button', { name: 'Delete login' }).click();
    await page.getByText('There is no login').waitFor();
    checkFaults();
  });

  it('a webhook shows its secret once, and what became of a test message', async () => {
    await visitor.goTo('/webhooks');
    await page.getByRole('button', { name: 'Create the first one' }).click();
    const making = page.getByRole('dialog', { name: 'New webhook' });
    await making.getByLabel('Description').fill('alarms');
    // The service refuses to send to itself: a name of its own is found out only by an attempt.
    await making.getByLabel('URL').fill('https://localhost/hook');
    await making.getByRole('button', { name: 'Create webhook' }).click();
    const shown = page.getByRole('dialog', { name: 'Signing secret' });
    await shown.getByRole('button', { name: 'Show' }).click();
    const secret = await shown.locator('code').innerText();
    assert.match(secret, /^whsec_\S{20,}$/u);
    await shown.getByRole('button', { name: 'I have copied it' }).click();
    await page.getByRole('heading', { name: 'alarms', level: 1 }).waitFor();
    await page.getByText('Nothing was sent').waitFor();
    await page.getByRole('button', { name: 'Send a test' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Send', exact: true }).click();
    const delivery = page.getByRole('group').filter({ hasText: 'webhook.test' });
    await delivery.getByText('the host name cannot be resolved').first().waitFor();
    await delivery.getByText('webhook.test').click();
    await delivery.getByText(/^Attempt 1/u).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: 'alarms', level: 1 }).waitFor();
    assert.equal((await page.content()).includes(secret), false, 'the secret is shown a second time');
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await page.getByRole('button', { name: 'Delete webhook' }).click();
    await page.getByText('There is no webhook yet').waitFor();
    checkFaults();
  });
});

/** Confirms the deletion of the disk that the page shows. Returns the dialog, which closes if it succeeds. */
async function deleteShown(page: Page): Promise<Locator> {
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  const dialog = page.getByRole('dialog', { name: /^Delete / });
  await dialog.getByRole('button', { name: 'Delete disk' }).click();
  return dialog;
}

/** Destroys a sandbox in another tab, by its page. */
async function destroySandbox(visitor: Visitor, id: string): Promise<void> {
  const tab = await visitor.openTab(`/sandboxes/${id}`);
  await tab.getByRole('button', { name: 'More actions' }).click();
  await tab.getByRole('menuitem', { name: 'Destroy' }).click();
  await tab.getByRole('dialog').getByRole('button', { name: 'Destroy' }).click();
  await tab.getByRole('dialog', { name: 'The sandbox was destroyed' }).waitFor();
  await tab.close();
}
