/** An organization in the dashboard: invitations, keys, secrets, the own account, and shortcuts. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import type { Locator, Page } from 'playwright-core';
import type { Api } from '../fixtures/api/api.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { Visitor } from '../fixtures/dashboard/visitor.ts';
import type { Service } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 180_000;
const OLD_PASSWORD = 'correct horse battery';
const NEW_PASSWORD = 'incorrect horse battery';
/** The invitation that a member may not make. */
const REFUSED = /status of 403 .*\/invitations$/u;
const ENDED = /status of 401|net::ERR|WebSocket/u;

describe('an organization in the dashboard', { timeout: TIMEOUT_MS }, () => {
  let browser: Browser;
  let service: Service;
  let api: Api;
  before(async () => {
    [browser, { service, api }] = await Promise.all([Browser.start(), shared()]);
  });
  after(() => browser[Symbol.asyncDispose]());

  it('an owner invites a person by a link, who joins as a member and has only what members may do', async () => {
    await using owner = await Visitor.signUp(browser, service);
    const { page } = owner;
    await page.getByRole('link', { name: 'People' }).click();
    await page.getByRole('link', { name: 'Invite' }).click();
    const asked = page.getByRole('dialog', { name: 'Invite a person' });
    await asked.getByRole('button', { name: 'Create the invitation' }).click();
    const ready = page.getByRole('dialog', { name: 'The invitation is ready' });
    const link = await ready.locator('code').innerText();
    await page.keyboard.press('Escape');
    assert.equal(await ready.isVisible(), true, 'a key loses the link');
    await ready.getByRole('button', { name: 'Done' }).click();
    await page.getByText('Any holder of the link').waitFor();
    const invitation = new URLSearchParams(new URL(link).hash.slice(1)).get('invitation') ?? '';
    assert.match(invitation, /^inv_\w/u);
    assert.equal((await page.content()).includes(invitation), false, 'the link is shown a second time');

    await using member = await Visitor.arrive(browser, service);
    await member.signUpBy(invitation, 'No team');
    await member.page.getByText('You are in no team of this organization').waitFor();
    await page.reload();
    await page.getByText('No invitation is open.').waitFor();
    await page.getByRole('button', { name: 'Add a member' }).click();
    const adding = page.getByRole('dialog', { name: /^Add a member/u });
    await adding.getByLabel('Person').selectOption({ label: `Ada Lovelace · ${member.email}` });
    await adding.getByRole('button', { name: 'Add' }).click();
    const team = page.getByRole('list', { name: /^\d members? of/u });
    await team.getByText(member.email).waitFor();
    await checkMember(member);
    assert.deepEqual(owner.faults, []);
    assert.deepEqual(
      member.faults.filter((fault) => !REFUSED.test(fault)),
      [],
    );
  });

  it('a key works when it is made, beside the one that replaces it, and not after it is revoked', async () => {
    await using visitor = await Visitor.signUp(browser, service);
    const { page } = visitor;
    const statusWith = async (key: string): Promise<number> =>
      (await api.call('GET', '/v1/runs', { key })).status;
    await visitor.goTo('/keys?new');
    const asked = page.getByRole('dialog', { name: 'New API key' });
    await asked.getByLabel('Name').fill('ci');
    await asked.getByRole('button', { name: 'Create the key' }).click();
    const first = await takeKey(page);
    assert.equal(await statusWith(first), 200);
    const rows = page.getByRole('table', { name: 'API keys' }).getByRole('row');
    await chooseFor(rows.filter({ hasText: first.slice(-4) }), 'Rotate');
    await page.getByLabel('How long the old key still works').selectOption('1 hour');
    await page.getByRole('button', { name: 'Rotate', exact: true }).last().click();
    const second = await takeKey(page);
    assert.notEqual(second, first);
    assert.deepEqual([await statusWith(first), await statusWith(second)], [200, 200]);
    await rows
      .filter({ hasText: first.slice(-4) })
      .getByText('ends soon')
      .waitFor();
    await chooseFor(rows.filter({ hasText: second.slice(-4) }), 'Revoke');
    await page.getByRole('button', { name: 'Revoke the key' }).click();
    await page.getByText('The key ci is revoked.').waitFor();
    assert.deepEqual([await statusWith(first), await statusWith(second)], [200, 401]);
    await page.getByLabel('Show the 1 that has ended').check();
    await rows
      .filter({ hasText: second.slice(-4) })
      .getByText('revoked')
      .waitFor();
    const text = await page.content();
    for (const key of [first, second]) assert.equal(text.includes(key), false, 'a key is shown again');
    assert.deepEqual(visitor.faults, []);
  });

  it('the owner reads the secret of the audit logs of a team, and rotates it', async () => {
    await using visitor = await Visitor.signUp(browser, service);
    const { page } = visitor;
    await visitor.goTo('/keys');
    const card = page.locator('.card').filter({ hasText: 'Secrets of the audit logs' });
    await card.getByText('There is none yet.').waitFor();
    const newest = card.getByRole('listitem').filter({ hasText: 'in use' });
    const secrets = card.getByRole('listitem');
    const rotate = async (count: number): Promise<string> => {
      await card.getByRole('button', { name: 'Rotate' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Rotate' }).click();
      await secrets.nth(count - 1).waitFor();
      await newest.getByRole('button', { name: 'Show' }).click();
      return newest.locator('code').innerText();
    };
    const before = await rotate(1);
    assert.match(before, /^[\w+/=-]{20,}$/u);
    assert.notEqual(await rotate(2), before);
    assert.equal(await secrets.count(), 2);
    assert.deepEqual(visitor.faults, []);
  });

  it('a new password ends the other session, and the theme is that of the last visit', async () => {
    await using visitor = await Visitor.signUp(browser, service);
    const { page } = visitor;
    await using elsewhere = await Visitor.arrive(browser, service);
    await elsewhere.goTo('/sign-in');
    await elsewhere.page.getByLabel('E-mail address').fill(visitor.email);
    await elsewhere.signIn();
    await elsewhere.page.getByText('No sandbox is running').waitFor();
    await visitor.goTo('/settings');
    const sessions = page.getByRole('table', { name: 'Sessions' }).getByRole('row');
    await sessions.nth(2).waitFor();
    await page.getByLabel('Current password').fill(OLD_PASSWORD);
    await page.getByLabel('New password', { exact: true }).fill(NEW_PASSWORD);
    await page.getByLabel('New password again').fill(NEW_PASSWORD);
    await page.getByRole('button', { name: 'Change the password' }).click();
    await page.getByText('Your password is changed.').waitFor();
    await elsewhere.page.getByRole('dialog', { name: 'Sign in again' }).waitFor();
    await sessions.nth(2).waitFor({ state: 'detached' });
    assert.equal(await sessions.getByText('this session').count(), 1);

    const background = (): Promise<string> =>
      page.evaluate<string>('getComputedStyle(document.body).backgroundColor');
    const light = await background();
    const dark = page.getByRole('group', { name: 'Theme' }).getByRole('button', { name: 'dark' });
    await dark.click();
    const chosen = await background();
    assert.notEqual(chosen, light);
    await page.reload();
    await dark.waitFor();
    assert.equal(await dark.getAttribute('aria-pressed'), 'true');
    assert.equal(await background(), chosen);
    assert.deepEqual(visitor.faults, []);
    assert.deepEqual(
      elsewhere.faults.filter((fault) => !ENDED.test(fault)),
      [],
    );
  });

  it('Ctrl-K leads to a page and to a sandbox, and the code of the list runs in a shell', async () => {
    await using visitor = await Visitor.signUp(browser, service);
    const { page } = visitor;
    const id = await visitor.createSandbox('quickly-found');
    await visitor.goTo('/sandboxes');
    await page.getByRole('row', { name: /quickly-found/u }).waitFor();
    await jumpTo(page, 'webh');
    await page.getByRole('heading', { name: 'Webhooks', level: 1 }).waitFor();
    await jumpTo(page, 'kly-f');
    await page.waitForURL(new RegExp(`/sandboxes/${id}`, 'u'));
    await page.getByRole('heading', { name: 'quickly-found', level: 1 }).waitFor();

    await visitor.goTo('/keys?new');
    await page.getByRole('dialog', { name: 'New API key' }).getByLabel('Name').fill('shell');
    await page.getByRole('button', { name: 'Create the key' }).click();
    const key = await takeKey(page);
    await visitor.goTo('/sandboxes');
    await page.getByRole('button', { name: 'Code', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Copy' }).click();
    const command = await page.evaluate<string>('navigator.clipboard.readText()');
    const { stdout } = await promisify(execFile)('/bin/sh', ['-c', command], {
      env: { PATH: process.env['PATH'], SANDBOX_API_KEY: key },
    });
    const listed = JSON.parse(stdout) as { id: string }[];
    assert.deepEqual(
      listed.map((sandbox) => sandbox.id),
      [id],
    );
    assert.equal((await api.call('DELETE', `/v1/runs/${id}`, { key })).status, 200);
    assert.deepEqual(visitor.faults, []);
  });
});

/** Checks what a member of a team sees, and that the service refuses the rest, too. */
async function checkMember(member: Visitor): Promise<void> {
  const { page } = member;
  await member.goTo('/people');
  const members = page.getByRole('table', { name: 'Members' });
  await members.getByRole('row', { name: new RegExp(member.email, 'u') }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'Invite' }).count(), 0);
  assert.equal(await page.getByRole('heading', { name: 'Invitations' }).count(), 0);
  assert.equal(await page.getByRole('button', { name: /^(?:New team|Add a member|Rename)/u }).count(), 0);
  const own = members.getByRole('row', { name: new RegExp(member.email, 'u') });
  await own.getByRole('button', { name: /^Actions for/u }).click();
  assert.deepEqual(await page.getByRole('menuitem').allInnerTexts(), ['Leave the organization']);
  await page.keyboard.press('Escape');
  await page.getByRole('link', { name: 'API keys' }).click();
  await page.getByText('Owners of the organization can show and rotate them.').waitFor();
  assert.equal(await page.getByRole('button', { name: /^(?:Show|Rotate)$/u }).count(), 0);
  await page.getByText('This team has no key').waitFor();
  const { body } = await member.call('GET', '/account/me');
  const [organization] = (body as { organizations: { id: string; role: string }[] }).organizations;
  assert.equal(organization?.role, 'member');
  const refused = await member.call('POST', `/account/organizations/${organization?.id}/invitations`, {
    role: 'owner',
  });
  assert.equal(refused.status, 403);
}

/** Reads the key that the page shows, and closes its dialog. */
async function takeKey(page: Page): Promise<string> {
  const shown = page.getByRole('dialog', { name: /^The key/u });
  const key = await shown.locator('code').first().innerText();
  await shown.getByRole('button', { name: 'Done' }).click();
  await shown.waitFor({ state: 'detached' });
  return key;
}

async function chooseFor(row: Locator, action: string): Promise<void> {
  await row.getByRole('button', { name: /^Actions for/u }).click();
  await row.getByRole('menuitem', { name: action }).click();
}

async function jumpTo(page: Page, letters: string): Promise<void> {
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: /^Search pages/u }).fill(letters);
  await page.keyboard.press('Enter');
}
