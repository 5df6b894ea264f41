/** The terminal, the commands and the files of a sandbox, in a browser. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { assertInert } from '../fixtures/dashboard/canaries.ts';
import { OwnedSandbox } from '../fixtures/dashboard/owned-sandbox.ts';
import type { Visitor } from '../fixtures/dashboard/visitor.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 240_000;
const STEP = { timeoutMs: 20_000, intervalMs: 50 };
const MARKUP = '<img src=x data-canary onerror="window.canary=1">';
/** A red pixel. */
const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==',
  'base64',
);
/** Larger than what the page sends in one call. */
const LARGE = randomBytes(300 * 1024);

/** The part that is used of a `DataTransfer` of a page. */
interface Transfer {
  items: { add: (file: File) => void };
}

describe('the guest in the dashboard', { timeout: TIMEOUT_MS }, () => {
  const resources = new AsyncDisposableStack();
  let sandbox: OwnedSandbox;
  let visitor: Visitor;
  let page: Page;
  before(async () => {
    const [browser, { service }] = await Promise.all([Browser.start(), shared()]);
    resources.use(browser);
    sandbox = resources.use(await OwnedSandbox.create(browser, service, 'guest'));
    ({ visitor, page } = sandbox);
  });
  after(() => resources.disposeAsync());

  const terminal = () => page.locator('.xterm-rows');
  const terminals = () => page.getByRole('group', { name: 'Terminals' });
  /** Buttons of the terminals that are not shown. */
  const other = () => terminals().locator('[aria-pressed="false"]');
  const countRows = () => terminal().locator('> div').count();

  /** Types a command line, and returns the last line of the terminal that matches. */
  async function ask(line: string, pattern: RegExp): Promise<RegExpExecArray> {
    await page.keyboard.type(`${line}\n`);
    return pollUntil({ step: `an answer to ${line}`, ...STEP }, async () => {
      const lines = (await terminal().locator('> div').allInnerTexts()).map((text) => pattern.exec(text));
      return lines.findLast((match) => match !== null) ?? undefined;
    });
  }

  it('the guest has the size of the terminal, also when the window changes', async () => {
    await terminal().getByText('/workspace#').first().waitFor();
    const first = await ask('echo "first $(stty size)"', /^first (\d+) (\d+)/u);
    const rows = await countRows();
    assert.equal(Number(first[1]), rows);
    await page.setViewportSize({ width: 900, height: 600 });
    await pollUntil({ step: 'fewer rows', ...STEP }, async () =>
      (await countRows()) < rows ? true : undefined,
    );
    const second = await ask('echo "second $(stty size)"', /^second (\d+) (\d+)/u);
    assert.equal(Number(second[1]), await countRows());
    assert.ok(Number(second[2]) < Number(first[2]), `${second[0]} after ${first[0]}`);
    await page.setViewportSize({ width: 1360, height: 860 });
    await pollUntil({ step: 'the rows again', ...STEP }, async () =>
      (await countRows()) === rows ? true : undefined,
    );
    const third = await ask('echo "third $(stty size)"', /^third (\d+) (\d+)/u);
    assert.deepEqual(third.slice(1), first.slice(1));
    assert.deepEqual(visitor.faults, []);
  });

  it('Ctrl-C ends a command, and the shell continues', async () => {
    await ask(`sh -c 'echo "begun $((1 + 1))"; exec sleep 1000'`, /^begun 2/u);
    await page.keyboard.press('Control+c');
    await ask('echo "code $?"', /^code 130/u);
    assert.deepEqual(visitor.faults, []);
  });

  it('a title that the guest sets is a text', async () => {
    await ask(String.raw`printf '\033]0;${MARKUP}\007'; echo "titled $((1 + 1))"; cat`, /^titled 2/u);
    const tab = terminals().getByRole('button', { name: MARKUP, exact: true });
    await tab.waitFor();
    assert.equal(await tab.innerText(), MARKUP);
    await assertInert(page);
    await page.keyboard.press('Control+c');
    assert.deepEqual(visitor.faults, []);
  });

  it('several terminals are separate shells, and stay open while another tab is shown', async () => {
    await ask('export SHELL_NAME=one', /SHELL_NAME=one/u);
    await page.getByRole('button', { name: 'Open another terminal' }).click();
    await other().waitFor();
    await terminal().getByText('/workspace#').first().waitFor();
    await ask('SHELL_NAME="${SHELL_NAME:-two}"; echo "I am $SHELL_NAME"', /^I am two/u);
    await sandbox.show('Overview');
    await page.getByRole('button', { name: 'Open another terminal' }).waitFor({ state: 'detached' });
    await sandbox.show('Terminal');
    await terminal().getByText('I am two').first().waitFor();
    await other().click();
    await terminal().getByText('SHELL_NAME=one').first().waitFor();
    await ask('echo "I am $SHELL_NAME"', /^I am one/u);
    await terminals()
      .getByRole('button', { name: /^Close /u })
      .first()
      .click();
    await terminal().getByText('I am two').first().waitFor();
    assert.equal(
      await terminals()
        .getByRole('button', { name: /^Close /u })
        .count(),
      1,
    );
    await page.keyboard.type('exit 3\n');
    await page.getByText('The shell has ended with exit code 3.').waitFor();
    await page.getByRole('button', { name: 'Open a new shell' }).click();
    // It takes input before the shell is there.
    await ask('echo "I am ${SHELL_NAME:-new}"', /^I am new/u);
    assert.deepEqual(visitor.faults, []);
  });

  it('a command shows its output as it is written, reads its input, and ends with its code', async () => {
    await startCommand(`echo begun; read word; echo "heard $word: ${MARKUP.replaceAll('"', '')}"; exit 7`);
    const output = page.getByRole('log', { name: 'Output of the command' });
    await output.getByText('begun').waitFor();
    await page.getByText('running', { exact: true }).nth(1).waitFor();
    await page.getByLabel('Line', { exact: true }).fill('hello');
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await output.getByText(`heard hello: ${MARKUP.replaceAll('"', '')}`).waitFor();
    await page.getByText('exited 7', { exact: true }).waitFor();
    await assertInert(page);
    await page.getByRole('link', { name: 'All commands' }).click();
    const row = page.getByRole('table', { name: 'Commands' }).getByRole('row', { name: /echo begun/u });
    await row.getByText('exited 7', { exact: true }).waitFor();
    assert.deepEqual(visitor.faults, []);
  });

  it('a signal reaches a command', async () => {
    await startCommand(`trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.1; done`);
    const output = page.getByRole('log', { name: 'Output of the command' });
    await output.getByText('ready').waitFor();
    const dialog = await sandbox.choose('Send a signal', /^TERM/u);
    await dialog.getByRole('button', { name: 'Send TERM' }).click();
    await output.getByText('asked').waitFor();
    await page.getByText('exited 3', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Send a signal' }).waitFor({ state: 'detached' });
    assert.deepEqual(visitor.faults, []);
  });

  async function startCommand(command: string): Promise<void> {
    await sandbox.show('Commands');
    await page.getByRole('button', { name: 'Start a command' }).click();
    const dialog = page.getByRole('dialog', { name: 'Start a command' });
    await dialog.getByLabel('Command', { exact: true }).fill(command);
    await dialog.getByLabel('Keep standard input open').check();
    await dialog.getByRole('button', { name: 'Start', exact: true }).click();
    await page.getByLabel('Command line').getByText(command).waitFor();
  }

  it('files are uploaded by a drop and by a dialog, and downloaded as they were', async () => {
    await sandbox.show('Files');
    await drop(page.getByText('Drop files here to upload them.'), [['dropped.txt', 'dropped\n<b>text</b>']]);
    await fileRow('dropped.txt').waitFor();
    const choosing = page.waitForEvent('filechooser');
    await sandbox.choose('Upload', 'Files');
    await (
      await choosing
    ).setFiles([
      { name: 'large.bin', mimeType: 'application/octet-stream', buffer: LARGE },
      { name: 'pixel.png', mimeType: 'image/png', buffer: PNG },
    ]);
    await fileRow('pixel.png').waitFor();
    await fileRow('large.bin').getByText('300 KiB').waitFor();
    await page.getByRole('region', { name: 'Upload' }).waitFor({ state: 'detached' });
    const downloading = page.waitForEvent('download');
    await sandbox.choose('Actions for large.bin', 'Download');
    const download = await downloading;
    assert.equal(download.suggestedFilename(), 'large.bin');
    assert.ok(readFileSync(await download.path()).equals(LARGE), 'the download differs');
    assert.deepEqual(visitor.faults, []);
  });

  it('a text and an image are shown', async () => {
    await fileRow('dropped.txt').getByRole('link').click();
    const content = page.getByRole('dialog', { name: 'dropped.txt' }).getByLabel('Content of the file');
    assert.equal(await content.innerText(), 'dropped\n<b>text</b>');
    await page.keyboard.press('Escape');
    await content.waitFor({ state: 'detached' });
    await fileRow('pixel.png').getByRole('link').click();
    const image = page.getByRole('dialog', { name: 'pixel.png' }).getByRole('img');
    await image.waitFor();
    await pollUntil({ step: 'the image', ...STEP }, async () =>
      (await image.evaluate((element) => (element as unknown as { naturalWidth: number }).naturalWidth)) === 1
        ? true
        : undefined,
    );
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
    await image.waitFor({ state: 'detached' });
    assert.deepEqual(visitor.faults, []);
  });

  it('a file is renamed and deleted', async () => {
    let dialog = await sandbox.choose('Actions for dropped.txt', 'Rename or move');
    await dialog.getByLabel('Name', { exact: true }).fill('renamed.txt');
    await dialog.getByRole('button', { name: 'Move' }).click();
    await fileRow('renamed.txt').waitFor();
    await fileRow('dropped.txt').waitFor({ state: 'detached' });
    dialog = await sandbox.choose('Actions for renamed.txt', 'Delete');
    await dialog.getByText('renamed.txt is deleted.').waitFor();
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await fileRow('renamed.txt').waitFor({ state: 'detached' });
    await sandbox.exec('test ! -e /workspace/renamed.txt && test -e /workspace/pixel.png');
    assert.deepEqual(visitor.faults, []);
  });

  it('a name with markup and a new line is a text, and its file can be used', async () => {
    const shown = String.raw`${MARKUP}\nsecond line`;
    await sandbox.exec(`printf hostile > "$(printf '%s\\nsecond line' '${MARKUP}')"`);
    await fileRow(shown).getByRole('link').click();
    await page.getByRole('dialog', { name: shown }).getByText('hostile').waitFor();
    await assertInert(page);
    await page.keyboard.press('Escape');
    const dialog = await sandbox.choose(`Actions for ${shown}`, 'Rename or move');
    assert.equal(await dialog.getByLabel('Name', { exact: true }).inputValue(), shown);
    await dialog.getByLabel('Name', { exact: true }).fill('harmless');
    await dialog.getByRole('button', { name: 'Move' }).click();
    await fileRow('harmless').waitFor();
    await fileRow(shown).waitFor({ state: 'detached' });
    await assertInert(page);
    assert.deepEqual(visitor.faults, []);
  });

  const fileRow = (name: string) =>
    page
      .getByRole('table', { name: 'Files' })
      .getByRole('row')
      .filter({ has: page.getByRole('link', { name, exact: true }) });

  /** Drops files as a person does from another window. */
  async function drop(
    place: Locator,
    files: readonly (readonly [name: string, text: string])[],
  ): Promise<void> {
    const transfer = await page.evaluateHandle<Transfer>('new DataTransfer()');
    await transfer.evaluate((made, dropped) => {
      for (const [name, text] of dropped) made.items.add(new File([text], name));
    }, files);
    for (const event of ['dragenter', 'dragover', 'drop'])
      await place.dispatchEvent(event, { dataTransfer: transfer });
  }
});
