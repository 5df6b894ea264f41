/** A family of sandboxes in the dashboard: its tree and what is done from it, its snapshots, and what it has cost. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import type { Locator } from 'playwright-core';
import type { Coppice } from '../../packages/sdk/src/index.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { clientOf, destroyAll } from '../fixtures/dashboard/client-of.ts';
import { Visitor } from '../fixtures/dashboard/visitor.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 240_000;
const ID = /run[0-9a-f]+/u;

describe('a family of sandboxes in the dashboard', { timeout: TIMEOUT_MS }, () => {
  const resources = new AsyncDisposableStack();
  let visitor: Visitor;
  let client: Coppice;
  let rootId = '';
  /** Children of the root, in the order of the tree. */
  let forks: string[] = [];
  let restoredId = '';
  before(async () => {
    const { service } = await shared();
    const browser = resources.use(await Browser.start());
    visitor = resources.use(await Visitor.signUp(browser, service));
    client = await clientOf(visitor);
    resources.defer(() => destroyAll(client));
    rootId = await visitor.createSandbox('root');
    await run(rootId, 'echo one > changed.txt');
    await visitor.goTo(`/sandboxes/${rootId}/lineage`);
  });
  afterEach(() => assert.deepEqual(visitor.faults, []));
  after(() => resources.disposeAsync());

  const tree = (): Locator => visitor.page.getByRole('tree', { name: 'Family of the sandbox' });
  const member = (name: string): Locator => tree().getByRole('treeitem', { name });
  const panel = (name: string): Locator => visitor.page.getByRole('region', { name: `Selected: ${name}` });
  const dialog = (name: string): Locator => visitor.page.getByRole('dialog', { name });
  const press = (place: Locator, name: string): Promise<void> =>
    place.getByRole('button', { name, exact: true }).click();

  async function run(id: string, command: string): Promise<string> {
    const sandbox = await client.sandboxes.get(id);
    const { exitCode, stdout, stderr } = (await sandbox?.exec(command, { cwd: '/workspace' })) ?? {};
    assert.equal(exitCode, 0, `${command}: ${stderr}`);
    return stdout?.trim() ?? '';
  }

  it('forks a sandbox several times, and takes a snapshot', async () => {
    const { page } = visitor;
    await page.getByText('This sandbox is alone').waitFor();
    await press(panel('root'), 'Fork');
    const forking = dialog('Fork the sandbox');
    const count = forking.getByLabel('Number of children');
    await count.fill('101');
    await forking.getByText('Write a whole number from 1 to 100.').waitFor();
    assert.equal(await forking.getByRole('button', { name: 'Fork', exact: true }).isDisabled(), true);
    await count.fill('2');
    await press(forking, 'Fork');
    const made = dialog('2 children run');
    await made.waitFor();
    const links = await made.getByRole('link').allInnerTexts();
    await made.getByRole('button', { name: 'Close' }).last().click();
    await member(links[1] ?? 'no link').waitFor();
    const texts = await tree().getByRole('treeitem').allInnerTexts();
    forks = texts.flatMap((text) => ID.exec(text)?.[0] ?? []);
    assert.deepEqual(forks.toSorted(), links.toSorted());
    const { nodes = [] } = (await (await client.sandboxes.get(rootId))?.tree()) ?? {};
    assert.deepEqual(
      nodes.flatMap(({ id, parentId }) => (parentId === rootId ? [id] : [])).toSorted(),
      links.toSorted(),
    );
    await press(panel('root'), 'Snapshot');
    await dialog('Take a snapshot').getByLabel('Name').fill('earlier');
    await press(dialog('Take a snapshot'), 'Take snapshot');
    await member('earlier').waitFor();
    await page.getByText('3 live · 1 snapshot · 0 ended').waitFor();
  });

  it('returns to the snapshot from the tree: later files are gone', async () => {
    await run(rootId, 'echo two > later.txt; echo two > changed.txt');
    await member('earlier').click();
    await press(panel('earlier'), 'Roll back');
    const asked = dialog('Roll back to earlier');
    await asked.getByLabel('Sandbox', { exact: true }).selectOption({ label: `root (${rootId})` });
    await press(asked, 'Roll back');
    await visitor.page.getByText('The sandbox was rolled back.').waitFor();
    assert.equal(await run(rootId, 'ls; cat changed.txt'), 'changed.txt\none');
  });

  it('is walked through by keys', async () => {
    const { page } = visitor;
    const [first = '', second = ''] = forks;
    const isSelected = async (name: string): Promise<void> => {
      await panel(name).waitFor();
      assert.equal(await member(name).getAttribute('aria-selected'), 'true');
      assert.equal(await tree().getByRole('treeitem', { selected: true }).count(), 1);
    };
    await tree().focus();
    await page.keyboard.press('Home');
    await isSelected('root');
    await page.keyboard.press('ArrowUp');
    await isSelected('root');
    await page.keyboard.press('ArrowRight');
    await isSelected(first);
    await page.keyboard.press('ArrowDown');
    await isSelected(second);
    await page.keyboard.press('End');
    await isSelected('earlier');
    await page.keyboard.press('ArrowLeft');
    await isSelected('root');
    await page.keyboard.press('ArrowLeft');
    await tree().getByRole('treeitem', { name: 'root', expanded: false }).waitFor();
    assert.equal(await tree().getByRole('treeitem').count(), 1);
    await page.keyboard.press('ArrowRight');
    await member(second).waitFor();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await page.waitForURL(new RegExp(`${first}/lineage$`, 'u'));
    await member(first).getByText('this one').waitFor();
    assert.equal(await member('root').getByText('this one').count(), 0);
    await page.goBack();
    await member('root').getByText('this one').waitFor();
  });

  it('compares two of its members, with their files', async () => {
    const [first = ''] = forks;
    await run(first, 'echo something else > changed.txt');
    await member('root').click();
    await press(panel('root'), 'Compare');
    await visitor.page.getByText('Pick what to compare root with').waitFor();
    await member(first).click();
    const compared = dialog('Compare');
    await compared.getByRole('row', { name: `Parent — ${rootId}` }).waitFor();
    await press(compared, 'Compare files');
    await compared.getByText(`1 of 1 entries differ, from root to ${first}.`).waitFor();
    const change = compared.getByRole('list', { name: 'Files that differ' }).getByRole('listitem');
    assert.match((await change.innerText()).replaceAll(/\s+/gu, ' '), /changed changed\.txt 4 B → 15 B/u);
    await press(compared, 'Close');
  });

  it('gets a sandbox from the page of snapshots', async () => {
    const { page } = visitor;
    await visitor.goTo('/snapshots');
    await page.getByRole('status').getByText('1 snapshot,').waitFor();
    await page
      .getByRole('row', { name: /earlier/u })
      .getByRole('button')
      .click();
    await page.getByRole('menuitem', { name: 'Restore as new sandbox' }).click();
    await dialog('Restore earlier').getByLabel('Name (optional)', { exact: true }).fill('restored');
    await press(dialog('Restore earlier'), 'Restore');
    await page.waitForURL(/\/sandboxes\/run[0-9a-f]+$/u);
    await page.getByRole('heading', { name: 'restored', level: 1 }).waitFor();
    restoredId = ID.exec(page.url())?.[0] ?? '';
    assert.notEqual(restoredId, rootId);
    assert.equal(await run(restoredId, 'ls; cat changed.txt'), 'changed.txt\none');
  });

  it('loses the branches that are not kept, which it lists before', async () => {
    const [kept = '', lost = ''] = forks;
    await visitor.goTo(`/sandboxes/${rootId}/lineage`);
    await tree().getByRole('treeitem', { name: 'restored', level: 3 }).waitFor();
    await member(kept).click();
    await press(panel(kept), 'Keep only this branch (ends 2)');
    const pruning = dialog(`Keep only the branch of ${kept}`);
    const doomed = pruning.getByRole('list', { name: 'Sandboxes to destroy' }).getByRole('listitem');
    const listed = (await doomed.allInnerTexts()).flatMap((text) => ID.exec(text)?.[0] ?? []);
    assert.deepEqual(listed.toSorted(), [lost, restoredId].toSorted());
    await press(pruning, 'Destroy 2 sandboxes');
    await visitor.page.getByText('2 sandboxes destroyed.').waitFor();
    await member(lost).getByText('destroyed').waitFor();
    assert.equal((await client.sandboxes.get(lost))?.record.status, 'destroyed');
    assert.equal((await client.sandboxes.get(restoredId))?.record.status, 'destroyed');
    const left = await client.sandboxes.list();
    assert.deepEqual(left.map(({ id }) => id).toSorted(), [rootId, kept].toSorted());
    await press(visitor.page.getByRole('group', { name: 'Sandboxes that are shown' }), 'live');
    await member(lost).waitFor({ state: 'hidden' });
    assert.equal(await member('earlier').isVisible(), true, 'the snapshot is gone');
  });

  it('is in the history with what it has cost, and in the sums', async () => {
    const { page } = visitor;
    await destroyAll(client);
    await visitor.goTo('/history');
    const ended = await client.history();
    assert.equal(ended.length, 4);
    for (const { id, costCents } of ended) {
      const row = page.getByRole('row', { name: id });
      await row.getByText('On request').waitFor();
      assert.equal(await row.getByText('destroyed').isVisible(), true);
      assert.ok(costCents > 0, `${id} has cost nothing`);
      assertShows(await row.innerText(), costCents);
    }
    const { historyCostCents, totalCostCents } = await client.usage();
    assertShows(await page.getByText('4 shown').innerText(), historyCostCents);
    await visitor.goTo('/usage');
    const figure = (label: string): Locator =>
      page
        .getByRole('main')
        .locator('div')
        .filter({ has: page.getByText(label, { exact: true }) })
        .last();
    assertShows(await figure('Cost so far').innerText(), totalCostCents);
    assertShows(await figure('Ended sandboxes').innerText(), historyCostCents);
    assertShows(await figure('Total').innerText(), totalCostCents);
    await page.getByRole('row', { name: rootId }).waitFor();
  });
});

/** Checks that a text has an amount of US dollars. Pages show six decimals of small ones. */
function assertShows(text: string, cents: number): void {
  const amounts = Array.from(text.matchAll(/\$([\d.]+)/gu), ([, digits]) => Number(digits));
  const isShown = amounts.some((amount) => Math.abs(amount - cents / 100) <= 5.1e-7);
  assert.ok(isShown && cents > 0, `${cents} cents are not in ${JSON.stringify(text)}`);
}
