/** The dashboard where it controls sandboxes: the network, the secrets of the team, and the logs of both. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import type { Locator } from 'playwright-core';
import type { Coppice, Sandbox } from '../../packages/sdk/src/index.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { clientOf, destroyAll, findPaths } from '../fixtures/dashboard/client-of.ts';
import { recordSent } from '../fixtures/dashboard/sent-text.ts';
import { Visitor } from '../fixtures/dashboard/visitor.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 240_000;
/** Nothing listens there. */
const NOWHERE = '198.51.100.7';
const REFUSED = 'refused.example.com';
const SECRET_VALUE = 'sk-canary-4f1d90e7';

describe('the network, secrets and logs in the dashboard', { timeout: TIMEOUT_MS }, () => {
  const resources = new AsyncDisposableStack();
  let visitor: Visitor;
  let client: Coppice;
  let sandbox: Sandbox;
  before(async () => {
    const { service } = await shared();
    const browser = resources.use(await Browser.start());
    visitor = resources.use(await Visitor.signUp(browser, service));
    client = await clientOf(visitor);
    resources.defer(() => destroyAll(client));
    const found = await client.sandboxes.get(await visitor.createSandbox('controlled'));
    assert.ok(found !== null);
    sandbox = found;
  });
  afterEach(() => assert.deepEqual(visitor.faults, []));
  after(() => resources.disposeAsync());

  const dialog = (name: string): Locator => visitor.page.getByRole('dialog', { name });
  const press = (place: Locator, name: string): Promise<void> =>
    place.getByRole('button', { name, exact: true }).click();

  it('tries connections under a policy, and names the rule that decides', async () => {
    const { page } = visitor;
    await visitor.goTo('/network');
    await page.getByLabel('Allow', { exact: true }).fill('api.example.com\n*.cdn.example.com');
    await page.getByLabel('Deny', { exact: true }).fill('203.0.113.0/24\nbad.cdn.example.com');
    const tester = page.getByRole('region', { name: 'Tester' });
    const expectResult = async (destination: string, ...texts: (string | RegExp)[]): Promise<void> => {
      await tester.getByLabel('Destination').fill(destination);
      for (const text of texts) await tester.getByRole('status').filter({ hasText: text }).waitFor();
    };
    await expectResult('https://api.example.com/v1', 'Allowed by allow[0] api.example.com');
    await expectResult('fast.cdn.example.com', 'Allowed by allow[1] *.cdn.example.com');
    await expectResult('bad.cdn.example.com', 'Refused by deny[1] bad.cdn.example.com', 'denied_by_rule');
    await expectResult('203.0.113.9:443', 'Refused by deny[0] 203.0.113.0/24', 'denied_by_rule');
    // Without a rule, the sentence follows the verdict at once.
    const refusesRest = /^Refused\s*No allow rule matches, and the policy refuses the rest\./u;
    await expectResult('elsewhere.example.org', refusesRest, 'In the audit log: not_allowed');
    await page.getByLabel('Allow', { exact: true }).fill('');
    await expectResult(
      'elsewhere.example.org',
      /^Allowed\s*No rule matches, and the policy allows the rest\./u,
    );
    await page.getByLabel('Deny', { exact: true }).fill('not a host');
    await page.getByText('The service would refuse these rules').waitFor();
  });

  it('sets the policy of a sandbox, shows what it refuses at once, and allows that', async () => {
    const { page } = visitor;
    await visitor.goTo(`/sandboxes/${sandbox.id}/network`);
    await page.getByText('Nothing was refused.').waitFor();
    await press(page.getByRole('main'), 'Edit policy');
    await dialog('Network policy').getByLabel('Allow', { exact: true }).fill('allowed.example.com');
    await press(dialog('Network policy'), 'Apply');
    await dialog('Network policy').waitFor({ state: 'hidden' });
    await page.getByText('Allows only what one rule matches.').waitFor();
    assert.deepEqual((await sandbox.network()).network, { allow: ['allowed.example.com'], deny: [] });

    const { exitCode } = await sandbox.exec(
      `curl -s -m 10 --resolve ${REFUSED}:80:${NOWHERE} http://${REFUSED}/`,
    );
    // 127: there is no such program.
    assert.ok(exitCode !== 0 && exitCode !== 127, `curl ended with ${exitCode}`);
    const line = page
      .getByRole('list', { name: 'Refused connections' })
      .getByRole('listitem')
      .filter({ hasText: `${REFUSED}:80` });
    await line.getByText('No allow rule matches, and the policy refuses the rest.').waitFor();
    await press(line, 'Allow this');
    const asked = dialog(`Allow ${REFUSED}:80`);
    await asked.getByText(`Adds to Allow: ${REFUSED}`).waitFor();
    assert.deepEqual((await sandbox.network()).network.allow, ['allowed.example.com']);
    await press(asked, 'Apply');
    await line.getByText('allowed now').waitFor();
    assert.deepEqual((await sandbox.network()).network, {
      allow: ['allowed.example.com', REFUSED],
      deny: [],
    });
  });

  it('stores a secret that is never shown again, and deletes it', async () => {
    const { page } = visitor;
    await visitor.goTo('/secrets');
    await press(page.getByRole('main'), 'Store the first one');
    const storing = dialog('New secret');
    await storing.getByLabel('Name', { exact: true }).fill('vendor-key');
    const value = storing.getByLabel('Value', { exact: true });
    await value.fill(SECRET_VALUE);
    assert.equal(await value.getAttribute('type'), 'password');
    await press(storing, 'Store secret');
    const row = page.getByRole('row', { name: /vendor-key/u });
    await row.getByText('no sandbox').waitFor();
    assert.ok(!(await page.content()).includes(SECRET_VALUE), 'the value is still in the page');
    assert.deepEqual(
      (await client.secrets.list()).map(({ name, version }) => [name, version]),
      [['vendor-key', 1]],
    );
    await row.getByRole('button', { name: 'Actions for vendor-key' }).click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await press(dialog('Delete vendor-key'), 'Delete secret');
    await page.getByText('There is no secret yet').waitFor();
    assert.deepEqual(await client.secrets.list(), []);
  });

  it('verifies the log of the organization in the browser, whose secret stays there', async () => {
    const { page } = visitor;
    const sent = recordSent(page);
    await visitor.goTo('/audit');
    const entries = page.getByRole('table', { name: 'Entries' });
    await entries
      .getByRole('row', { name: /Stored version 1 of the secret vendor-key.* Ada Lovelace/u })
      .waitFor();
    await entries.getByRole('row', { name: /Deleted the secret vendor-key/u }).waitFor();
    const { organization } = await findPaths(visitor);
    const read = page.waitForResponse(/\/audit-secrets\/[^/]+$/u);
    await press(page.getByRole('main'), 'Verify');
    const verifying = dialog('Verify the log');
    await press(verifying, 'Verify');
    const { secret } = (await (await read).json()) as { secret: string };
    await verifying.getByText('The log is unchanged').waitFor();
    await verifying.getByText('It reaches the head that the service names now.').waitFor();
    const head = await client.organization.auditHead();
    await verifying.getByText(`${head.seq} entries verified.`).waitFor();
    await verifying.getByText(`${head.seq}:${head.hmac}`).waitFor();
    assertKept(secret, sent, `${organization}/audit-secrets/`);

    await page.route(/\/audit$/u, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, body: (await response.text()).replace('vendor-key', 'another-key') });
    });
    await press(verifying, 'Verify');
    await verifying.getByText('The log was changed').waitFor();
    await verifying.getByText('First fault (altered)').waitFor();
    await page.unrouteAll();
  });

  it('shows the log of a sandbox as it grows, and verifies it', async () => {
    const { page } = visitor;
    const sent = recordSent(page);
    await visitor.goTo(`/sandboxes/${sandbox.id}/audit`);
    await page.getByText('live', { exact: true }).waitFor();
    const entries = page.getByRole('table', { name: 'Entries' });
    await entries
      .getByRole('row', { name: new RegExp(`Refused a connection to ${REFUSED}:80`, 'u') })
      .waitFor();
    await sandbox.exec('echo a new entry');
    await entries.getByRole('row', { name: /Ran echo a new entry/u }).waitFor();
    const read = page.waitForResponse(/\/audit-secrets\/[^/]+$/u);
    await press(page.getByRole('main'), 'Verify');
    const verifying = dialog('Verify the log');
    await press(verifying, 'Verify');
    const { secret } = (await (await read).json()) as { secret: string };
    await verifying.getByText('The log is unchanged').waitFor();
    const head = await sandbox.auditHead();
    await verifying.getByText(`${head.seq}:${head.hmac}`).waitFor();
    assertKept(secret, sent, '/teams/');
  });
});

/** Checks that a page which has read a secret has sent it nowhere. `path` is part of where it read it. */
function assertKept(secret: string, sent: readonly string[], path: string): void {
  assert.match(secret, /^c[ot]s_.{40}/u);
  assert.ok(
    sent.some((text) => text.includes(path)),
    'the requests of the page were not seen',
  );
  assert.deepEqual(
    sent.filter((text) => text.includes(secret) || text.includes(encodeURIComponent(secret))),
    [],
  );
}
