/** Texts that images, registries, receivers of webhooks, guests and clients on the network choose stay texts on the pages. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { after, afterEach, before, describe, it } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { WebhookReceiver } from '../../packages/server/src/control/webhooks/testing/webhook-receiver.ts';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import type { Coppice } from '../../packages/sdk/src/index.ts';
import { Api } from '../fixtures/api/api.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { SMALL } from '../fixtures/api/client.ts';
import { assertInert, MARKUP, TURNED, TURNED_AS_SHOWN } from '../fixtures/dashboard/canaries.ts';
import { clientOf, destroyAll } from '../fixtures/dashboard/client-of.ts';
import { PASSWORD, Visitor } from '../fixtures/dashboard/visitor.ts';
import { startHostileRegistry, type HostileRegistry } from '../fixtures/images/hostile-registry.ts';
import { startRegistry } from '../fixtures/images/registry.ts';
import { pushTinyImage } from '../fixtures/images/tiny-image.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const TIMEOUT_MS = 240_000;
const INSTANCE = 18;
/** A VM that is emulated builds slowly. */
const PATIENCE_MS = 120_000;
/** Nothing listens there. */
const NOWHERE = '198.51.100.7';
const PROPER_NAME = 'data-canary.example';
const ODD_NAMES = readFileSync(new URL('../fixtures/guest/odd-names.py', import.meta.url), 'utf8');
/** Calls that the service refuses here. */
const EXPECTED =
  /status of (?:400|404|422) .*\/v1\/(?:runs|runs\/[^/]+\/exec\/stream|images\/build|registries\/[^/]+)$/u;

describe('texts from outside in the dashboard', { timeout: TIMEOUT_MS }, () => {
  const resources = new AsyncDisposableStack();
  let service: Service;
  let visitor: Visitor;
  let page: Page;
  let client: Coppice;
  let registry: HostileRegistry;
  /** Reference of an image whose programs run as a user that it does not have. */
  let imageOfNoUser: string;
  before(async () => {
    registry = resources.use(await startHostileRegistry(TURNED));
    const directory = mkdtempSync('/var/tmp/coppice-e2e-canaries-');
    resources.defer(() => rmSync(directory, { recursive: true, force: true }));
    const honest = resources.use(await startRegistry({ directory }));
    await pushTinyImage(honest, { name: 'canary:1', programs: ['/bin/sh'], config: { User: MARKUP } });
    imageOfNoUser = `${honest.name}/canary:1`;
    const env = {
      COPPICE_INSECURE_REGISTRIES: `${registry.name},${honest.name}`,
      COPPICE_WEBHOOK_OPEN_RANGES: '127.0.0.0/8',
    };
    const browser = resources.use(await Browser.start());
    service = resources.use(await startPrepared({ instance: INSTANCE, env }));
    visitor = resources.use(await Visitor.signUp(browser, service));
    page = visitor.page;
    client = await clientOf(visitor);
    resources.defer(() => destroyAll(client));
  });
  afterEach(async () => {
    await assertInert(page);
    assert.deepEqual(
      visitor.faults.filter((fault) => !EXPECTED.test(fault)),
      [],
    );
  });
  after(() => resources.disposeAsync());

  /** Presses a button, and waits until the text of an error has all of `parts`. */
  async function expectRefusal(place: Page | Locator, button: string, ...parts: string[]): Promise<void> {
    await place.getByRole('button', { name: button, exact: true }).click();
    let alert = place.getByRole('alert');
    for (const part of parts) alert = alert.filter({ hasText: part });
    await alert.waitFor();
    await assertInert(page);
  }

  it('the form for a sandbox quotes references of images, answers of registries and rules', async () => {
    const create = 'Create the sandbox';
    await visitor.goTo('/sandboxes/new');
    const image = page.getByLabel('Image', { exact: true });
    await image.fill(TURNED);
    await expectRefusal(page, create, TURNED_AS_SHOWN, 'is not an image reference');
    await image.fill(`app:${TURNED}`);
    await expectRefusal(page, create, `the tag "${TURNED_AS_SHOWN}" may have`);
    await image.fill(registry.otherPlatform);
    await expectRefusal(page, create, `is for ${TURNED_AS_SHOWN}/${TURNED_AS_SHOWN}, sandboxes here are`);
    await image.fill(registry.otherKind);
    await expectRefusal(page, create, `its config is "${TURNED_AS_SHOWN}"`);
    await image.fill(BASE_IMAGE);
    await page.getByLabel('Policy').selectOption('rules');
    await page.getByLabel('Allow').fill(MARKUP);
    await expectRefusal(page, create, MARKUP);
    await visitor.goTo('/network');
    await page.getByLabel('Allow', { exact: true }).fill(MARKUP);
    await page.getByRole('status').filter({ hasText: MARKUP }).waitFor();
  });

  it('images and builds show what a registry, a Dockerfile and programs wrote', async () => {
    await visitor.goTo('/images');
    await page.getByRole('button', { name: 'Prepare an image' }).click();
    const preparing = page.getByRole('dialog', { name: 'Prepare an image' });
    await preparing.getByLabel('Image').fill(registry.otherPlatform);
    await expectRefusal(preparing, 'Prepare', `is for ${TURNED_AS_SHOWN}/`);

    await visitor.goTo('/images/builds');
    await page.getByRole('button', { name: 'Start the first build' }).click();
    const building = page.getByRole('dialog', { name: 'New build' });
    const name = building.getByLabel('Name of the image');
    await name.fill(MARKUP);
    await expectRefusal(building, 'Start build', MARKUP);
    await name.fill('canary:1');
    const dockerfile = building.getByLabel('Dockerfile');
    await dockerfile.fill(`FROM ${withoutSpaces(TURNED)}\n`);
    await expectRefusal(building, 'Start build', withoutSpaces(TURNED_AS_SHOWN));
    await dockerfile.fill(`FROM ${BASE_IMAGE}\nRUN echo '${TURNED}'; echo 'error ${TURNED}' >&2; exit 3\n`);
    await building.getByText('More', { exact: true }).click();
    await building.getByLabel('Memory of the build in MiB').fill(String(SMALL.memMiB));
    await building.getByRole('button', { name: 'Start build' }).click();
    await page.waitForURL(/\/images\/builds\/[^/]+$/u);
    const log = page.getByRole('log');
    await log.getByText(TURNED_AS_SHOWN, { exact: true }).waitFor({ timeout: PATIENCE_MS });
    await log.getByText(`error ${TURNED_AS_SHOWN}`, { exact: true }).waitFor();
    await log.getByText(`line 2: RUN echo '${TURNED_AS_SHOWN}'`).waitFor();
    const reason = page.getByRole('status').filter({ hasText: 'ended with exit code 3' });
    await reason.filter({ hasText: `echo '${TURNED_AS_SHOWN}'` }).waitFor({ timeout: PATIENCE_MS });
    await reason.filter({ hasText: `error ${TURNED_AS_SHOWN}` }).waitFor();
    await assertInert(page);

    await client.builds.start({ name: 'canary:2', from: registry.otherPlatform, steps: [{ run: 'true' }] });
    await visitor.goTo('/images/builds');
    const failed = (image: string): Locator => page.getByRole('row', { name: new RegExp(image, 'u') });
    await failed('canary:1').getByText(TURNED_AS_SHOWN).waitFor();
    await failed('canary:2').getByText(`is for ${TURNED_AS_SHOWN}/`).waitFor();
  });

  it('a sandbox quotes the user that its image names', async () => {
    const sandbox = await client.sandboxes.create({ ...SMALL, image: imageOfNoUser, timeout: 0 });
    await visitor.goTo(`/sandboxes/${sandbox.id}/terminal`);
    const reason = `the image's USER "${MARKUP}" cannot be used`;
    await page.getByText(reason).waitFor();
    await assertInert(page);
    await visitor.goTo(`/sandboxes/${sandbox.id}/overview`);
    await page.getByLabel('Command', { exact: true }).fill('true');
    await expectRefusal(page, 'Run', reason);
    await sandbox.destroy();
  });

  it('a login shows its user, and refuses a registry that is none', async () => {
    await visitor.goTo('/images/registries');
    await page.getByRole('button', { name: 'Store a login' }).click();
    const login = page.getByRole('dialog', { name: 'New login' });
    const host = login.getByLabel('Registry');
    await host.fill(`${MARKUP}.example`);
    await login.getByLabel('User').fill(TURNED);
    await login.getByLabel('Password or token', { exact: true }).fill('a token');
    await expectRefusal(login, 'Store', MARKUP);
    await host.fill(registry.name);
    await login.getByRole('button', { name: 'Store' }).click();
    await page.getByRole('row').getByText(TURNED_AS_SHOWN).waitFor();
    await assertInert(page);
    await visitor.goTo('/audit');
    await page.getByRole('row').getByText(TURNED_AS_SHOWN).waitFor();
  });

  it('a delivery shows the answer of its receiver', async () => {
    await using receiver = await WebhookReceiver.start((response) => {
      const headers = { 'content-type': 'text/html', 'x-canary': MARKUP };
      response.writeHead(500, MARKUP, headers).end(`<h1 data-canary>${TURNED}</h1>`);
    });
    const { id } = await client.webhooks.create({ url: receiver.url(), types: ['sandbox.failed'] });
    await client.webhooks.test(id);
    await visitor.goTo(`/webhooks/${id}`);
    const delivery = page.getByRole('group').filter({ hasText: 'webhook.test' });
    await delivery.getByText('HTTP 500').first().waitFor();
    await delivery.getByText('webhook.test').click();
    const answer = delivery.getByLabel('Answer to attempt 1');
    assert.equal(await answer.innerText(), `<h1 data-canary>${TURNED_AS_SHOWN}</h1>`);
    await assertInert(page);
    await client.webhooks.delete(id);
  });

  it('a session shows the program that its client names, and no address that a header invents', async () => {
    const agent = withoutSpaces(MARKUP);
    const signedIn = await new Api(service).call('POST', '/account/sign-in', {
      key: null,
      headers: { origin: service.address, 'user-agent': agent, 'x-forwarded-for': MARKUP },
      body: { email: visitor.email, password: PASSWORD },
    });
    assert.equal(signedIn.status, 200, signedIn.text);
    await visitor.goTo('/settings');
    const shown = agent.replace('/', ' ');
    const row = page.getByRole('row').filter({ hasText: shown });
    await row.getByText('127.0.0.1', { exact: true }).waitFor();
    await assertInert(page);
    await row.getByRole('button', { name: 'End' }).click();
    await page.getByRole('dialog').getByText(shown).waitFor();
  });

  it('a name that is none is refused without showing it, and a signed path is shown as it was sent', async () => {
    const sandbox = await client.sandboxes.create({
      ...SMALL,
      timeout: 0,
      network: { allow: ['allowed.example.com'] },
      credentialsV2: { openai: { key: 'sk-canary-value', endpoints: [] } },
    });
    await visitor.goTo(`/sandboxes/${sandbox.id}/network`);
    await page.getByText('Nothing was refused.').waitFor();
    await sandbox.upload('/tmp/odd-names.py', ODD_NAMES);
    const result = await sandbox.exec(`python3 /tmp/odd-names.py '${MARKUP}' ${NOWHERE} ${PROPER_NAME}`);
    assert.deepEqual([result.exitCode, result.stdout], [0, '403\n'], result.stderr);

    const refused = page.getByRole('list', { name: 'Refused connections' }).getByRole('listitem');
    await refused.filter({ hasText: PROPER_NAME }).getByText('No allow rule matches').waitFor();
    for (const port of [80, 443])
      await refused
        .filter({ hasText: `${NOWHERE}:${port}` })
        .getByText('the name is hidden')
        .waitFor();
    await refused
      .filter({ hasText: 'unknown destination' })
      .getByText('The shown name is not a host name')
      .waitFor();
    assert.equal(await refused.filter({ hasText: '<' }).count(), 0);
    await assertInert(page);
    await visitor.goTo(`/sandboxes/${sandbox.id}/audit`);
    const entries = page.getByRole('table', { name: 'Entries' }).getByRole('row');
    for (const place of [PROPER_NAME, `${NOWHERE}:80`, `${NOWHERE}:443`, 'an unknown address'])
      await entries.getByText(`Refused a connection to ${place}:`).waitFor();
    await entries
      .getByText(/Ran python3/u)
      .filter({ hasText: MARKUP })
      .waitFor();
    // The path as it was sent, where a space has to be encoded.
    await entries.getByText('/v1/%3Cimg%20src=x%20data-canary%20onerror=window.canary=1%3E').waitFor();
  });
});

/** Markup in one word: a slash separates attributes, too. */
function withoutSpaces(text: string): string {
  return text.replaceAll(' ', '/');
}
