/** The ports, metrics, events and life of a sandbox, in a browser. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { call } from '../fixtures/api/http-call.ts';
import { OwnedSandbox } from '../fixtures/dashboard/owned-sandbox.ts';
import type { Visitor } from '../fixtures/dashboard/visitor.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 240_000;
const STEP = { timeoutMs: 30_000, intervalMs: 50 };
const PORT = 3000;
const SERVER = `require('http').createServer((_, answer) => answer.end('from the guest')).listen(${PORT}, () => console.log('listens'))`;

/** The part that is used of the element of a page. */
interface Canvas {
  width: number;
  height: number;
  getContext: (kind: '2d') => {
    getImageData: (left: number, top: number, width: number, height: number) => { data: Uint8ClampedArray };
  };
}

describe('the life of a sandbox in the dashboard', { timeout: TIMEOUT_MS }, () => {
  const resources = new AsyncDisposableStack();
  let sandbox: OwnedSandbox;
  let visitor: Visitor;
  let page: Page;
  let events: Page;
  before(async () => {
    const [browser, { service }] = await Promise.all([Browser.start(), shared()]);
    resources.use(browser);
    sandbox = resources.use(await OwnedSandbox.create(browser, service, 'lively'));
    ({ visitor, page } = sandbox);
    // Shows what happens in the other tab.
    events = await visitor.openTab(`/sandboxes/${sandbox.id}/events`);
    await page.bringToFront();
  });
  after(() => resources.disposeAsync());

  const state = (text: string) => page.locator('.page-head .badge').getByText(text, { exact: true });

  it('a link to a port opens the server there until it is revoked', async () => {
    await sandbox.exec(`setsid node -e "${SERVER}" </dev/null >/tmp/server.log 2>&1 &
      until grep -q listens /tmp/server.log; do sleep 0.1; done`);
    await sandbox.show('Ports');
    await page.getByText('No links').waitFor();
    await page.getByRole('button', { name: String(PORT), exact: true }).click();
    assert.equal(await page.getByLabel('Port', { exact: true }).inputValue(), String(PORT));
    await page.getByText('The sandbox listens on', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Create link' }).click();
    const link = page.getByRole('listitem').filter({ hasText: `Port ${PORT}` });
    const url = (await link.getByRole('link', { name: 'Open' }).getAttribute('href')) ?? '';
    assert.match(url, new RegExp(`^http://${PORT}-${sandbox.id}\\.localhost:\\d+/`, 'u'));
    await link.getByText(url, { exact: true }).waitFor();
    const { status, cookie } = await visit(url);
    assert.equal(status, 303);
    const answer = await ask(new URL('/', url), { cookie });
    assert.deepEqual([answer.status, answer.text], [200, 'from the guest']);
    await link.getByRole('button', { name: 'Revoke' }).click();
    const dialog = page.getByRole('dialog', { name: 'Revoke link' });
    await dialog.getByRole('button', { name: 'Revoke' }).click();
    await page.getByText('No links').waitFor();
    assert.equal((await visit(url)).status, 401);
    assert.equal((await ask(new URL('/', url), { cookie })).status, 401);
    assert.deepEqual(visitor.faults, []);
  });

  /** Sends a request to another origin of the service, which the page itself may not call. */
  async function ask({ host, pathname, search }: URL, headers: Record<string, string> = {}) {
    return call(visitor.service.address, { path: pathname + search, headers: { host, ...headers } });
  }

  async function visit(url: string): Promise<{ status: number; cookie: string }> {
    const { status, headers } = await ask(new URL(url));
    return { status, cookie: headers['set-cookie']?.[0]?.split(';')[0] ?? '' };
  }

  it('charts appear by themselves, with values', async () => {
    await sandbox.show('Metrics');
    for (const title of ['CPU', 'Memory', 'Disk traffic', 'Network']) {
      const chart = page.getByRole('img', { name: new RegExp(`^${title}\\. .*: latest [\\d.,]+`, 'u') });
      await chart.waitFor();
      await pollUntil({ step: `the drawing of ${title}`, ...STEP }, async () =>
        (await isDrawn(chart)) ? true : undefined,
      );
    }
    const now = page.locator('section').filter({ has: page.getByRole('heading', { name: 'Now' }) });
    assert.match(await now.innerText(), /CPU time\s+[\d.]+ s\s/u);
    assert.match(await now.innerText(), /Memory\s+512 MiB/u);
    assert.deepEqual(visitor.faults, []);
  });

  async function isDrawn(chart: Locator): Promise<boolean> {
    return chart.locator('canvas').evaluate((element) => {
      const canvas = element as unknown as Canvas;
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return data.some((value) => value > 0);
    });
  }

  it('hibernates and resumes with its memory, and the events say so at once', async () => {
    await latestEvent(/^Created/u).waitFor();
    await sandbox.exec('echo remembered > /dev/shm/kept');
    await sandbox.show('Terminal');
    await page.locator('.xterm').getByText('/workspace#').first().waitFor();
    await page.getByRole('button', { name: 'Hibernate' }).click();
    await confirm('Hibernate the sandbox', 'Hibernate');
    await page.getByText('The sandbox is hibernated.', { exact: true }).waitFor();
    await state('hibernated').waitFor();
    await page.getByText('The sandbox is hibernated, which ended this terminal.').waitFor();
    await latestEvent(/^Hibernated/u).waitFor();
    await page.getByRole('button', { name: 'Resume', exact: true }).click();
    await confirm('Resume the sandbox', 'Resume');
    await page.getByText('The sandbox runs.', { exact: true }).waitFor();
    await state('running').waitFor();
    await latestEvent(/^Resumed/u).waitFor();
    await page.getByRole('button', { name: 'Open a new shell' }).click();
    await readKept();
    assert.deepEqual(visitor.faults, []);
  });

  async function confirm(title: string, verb: string): Promise<void> {
    const dialog = page.getByRole('dialog', { name: title });
    await dialog.getByRole('button', { name: verb, exact: true }).click();
    await dialog.waitFor({ state: 'detached' });
  }

  /** Reads a file of the guest's memory in the terminal. */
  async function readKept(): Promise<void> {
    const terminal = page.locator('.xterm');
    await page.getByText('stays open while you look').waitFor();
    await page.keyboard.type('echo "it is $(cat /dev/shm/kept)"\n');
    await terminal.getByText('it is remembered').waitFor();
  }

  /** An event of the life of the sandbox, as the other tab shows it. */
  const latestEvent = (text: RegExp): Locator =>
    events
      .getByRole('list', { name: 'Events, newest first' })
      .getByRole('listitem')
      .filter({ hasText: text });

  it('a fork by 2 links to two running children with the same memory', async () => {
    await page.getByRole('button', { name: 'Fork', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'Fork the sandbox' });
    await dialog.getByLabel('Number of children').fill('2');
    await dialog.getByRole('button', { name: 'Fork', exact: true }).click();
    const children = page.getByRole('dialog', { name: '2 children run' });
    const links = children.getByRole('listitem').getByRole('link');
    await links.nth(1).waitFor();
    const paths = await links.evaluateAll((all) => all.map((link) => link.getAttribute('href') ?? ''));
    assert.equal(new Set([...paths, `/sandboxes/${sandbox.id}`]).size, 3);
    for (const path of paths)
      await latestEvent(new RegExp(`^Forked.*${path.replace('/sandboxes/', '')}`, 'u')).waitFor();
    await links.first().click();
    await page.waitForURL((url) => url.pathname === paths[0]);
    await state('running').waitFor();
    await sandbox.show('Terminal');
    await readKept();
    assert.deepEqual(visitor.faults, []);
  });

  it('a destroy by the page shows the cost', async () => {
    await visitor.goTo(`/sandboxes/${sandbox.id}`);
    await sandbox.choose('More actions', 'Destroy');
    const asked = page.getByRole('dialog', { name: 'Destroy the sandbox' });
    await asked.getByText('lively ends now').waitFor();
    await asked.getByRole('button', { name: 'Destroy' }).click();
    const result = page.getByRole('dialog', { name: 'The sandbox was destroyed' });
    const [, cost] = /Cost\s+\$([\d.]+)/u.exec(await result.innerText()) ?? [];
    assert.ok(Number(cost) > 0, await result.innerText());
    await result.getByRole('button', { name: 'Close' }).last().click();
    await result.waitFor({ state: 'detached' });
    await state('destroyed').waitFor();
    await latestEvent(/^Destroyed/u).waitFor();
    const told = await events
      .getByRole('listitem')
      .filter({ has: events.locator('time') })
      .allInnerTexts();
    const life = told.map((text) => text.split(/[\s:]/u)[0] ?? '');
    const kinds = new Set(['Created', 'Hibernated', 'Resumed', 'Forked', 'Destroyed']);
    assert.deepEqual(
      life.filter((kind) => kinds.has(kind)),
      ['Destroyed', 'Forked', 'Forked', 'Resumed', 'Hibernated', 'Created'],
    );
    assert.deepEqual(visitor.faults, []);
  });
});
