/** The page of the operator: the host as it is, and limits and credit of an organization that are then in force. */
import assert from 'node:assert/strict';
import { statfs } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { after, before, describe, it } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import type { HostRecord, OperatedOrganization } from '../../packages/contract/src/accounts/operator.ts';
import type { Coppice, CoppiceError, Sandbox } from '../../packages/sdk/src/index.ts';
import { findBarriers } from '../../packages/server/src/control/testing/watched-page.ts';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { clientOf } from '../fixtures/dashboard/client-of.ts';
import { Visitor } from '../fixtures/dashboard/visitor.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import { INVITATION, type Service } from '../fixtures/service/service.ts';

const TIMEOUT_MS = 180_000;
const TENANT = 'Example <b>Ltd</b>';
const FIRST_CREDIT_CENTS = 100;
const OPERATOR = '/account/operator';
/** The page promises limits within 10 s. */
const IN_FORCE = { step: 'the limits to be in force', timeoutMs: 11_000, intervalMs: 250 };
const SMALL = { image: BASE_IMAGE, memMiB: 256, diskMiB: 512, vcpus: 1 } as const;
const MIB = 2 ** 20;
/** Changes that the service is meant to refuse. */
const BAD = /status of 400 .*\/account\/operator\/organizations\/\w+\/(?:limits|credit)$/u;
const FORBIDDEN = /status of 403 .*\/account\/operator\//u;

describe('the page of the operator', { timeout: TIMEOUT_MS }, () => {
  const resources = new AsyncDisposableStack();
  let service: Service;
  let operator: Visitor;
  let tenant: Visitor;
  let tenantId: string;
  let client: Coppice;
  let sandbox: Sandbox;

  before(async () => {
    const credit = { COPPICE_CREDIT_USD: String(FIRST_CREDIT_CENTS / 100) };
    service = resources.use(await startPrepared({ instance: 8, env: credit }));
    const browser = resources.use(await Browser.start());
    operator = resources.use(await Visitor.arrive(browser, service));
    await operator.signUpBy(INVITATION);
    const { body: made } = await operator.call('POST', '/account/organizations', { name: TENANT });
    tenantId = (made as { id: string }).id;
    const path = `/account/organizations/${tenantId}/invitations`;
    const { body: invited } = await operator.call('POST', path, { role: 'owner' });
    tenant = resources.use(await Visitor.arrive(browser, service));
    await tenant.signUpBy((invited as { invitation: string }).invitation);
    // The client would wait for a limit to be free again.
    client = await clientOf(tenant, { maxRetries: 0 });
  });
  after(() => resources.disposeAsync());

  async function readHost(): Promise<HostRecord> {
    return (await operator.call('GET', `${OPERATOR}/host`)).body as HostRecord;
  }

  async function readTenant(): Promise<OperatedOrganization> {
    const { body } = await operator.call('GET', `${OPERATOR}/organizations`);
    const found = (body as OperatedOrganization[]).find(({ id }) => id === tenantId);
    assert.ok(found);
    return found;
  }

  function rowOfTenant(): Locator {
    return operator.page.getByRole('table', { name: 'Organizations' }).getByRole('row', { name: TENANT });
  }

  async function openDialog(entry: string): Promise<Locator> {
    await rowOfTenant()
      .getByRole('button', { name: `Actions for ${TENANT}` })
      .click();
    await operator.page.getByRole('menuitem', { name: entry }).click();
    return operator.page.getByRole('dialog');
  }

  it('credit that is taken back stops creates, and a grant lets them run', async () => {
    const { page } = operator;
    await client.createDisk({ name: 'first', sizeGb: 1 });
    await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Operator' }).click();
    // The organization has used nothing yet, and has its first credit all the same.
    await rowOfTenant().getByText('$1.00').waitFor();
    const taking = await openDialog('Grant or take back credit');
    await taking.getByRole('button', { name: 'Take back', exact: true }).first().click();
    await taking.getByLabel('Amount in USD').fill('5');
    await taking.getByText('-$4.00').waitFor();
    await taking.getByRole('button', { name: 'Take back $5.00' }).click();
    await rowOfTenant().getByText('-$4.00').waitFor();
    await assert.rejects(
      client.sandboxes.create(SMALL),
      (error: CoppiceError) => error.code === 'credit_exhausted',
    );

    const granting = await openDialog('Grant or take back credit');
    const grant = granting.getByRole('button', { name: /^Grant/u }).last();
    const amount = granting.getByLabel('Amount in USD');
    for (const bad of ['1.234', '-2', 'ten']) {
      await amount.fill(bad);
      await granting.getByText(/^Amount in USD must be above 0/u).waitFor();
      assert.equal(await grant.isDisabled(), true, bad);
    }
    await amount.fill('10');
    await granting.getByLabel('Note').fill('é'.repeat(101));
    await grant.click();
    await granting.getByRole('alert').getByText(/note/u).waitFor();
    assert.equal((await readTenant()).credit_left_cents, FIRST_CREDIT_CENTS - 500);
    await granting.getByLabel('Note').fill('invoice 17');
    await grant.click();
    await rowOfTenant().getByText('$6.00').waitFor();
    assert.equal((await readTenant()).credit_left_cents, FIRST_CREDIT_CENTS - 500 + 1000);
    sandbox = await client.sandboxes.create({ ...SMALL, disk: 'first' });
    const shown = await page.reload().then(() => rowOfTenant().innerText());
    assert.match(shown, /\n1\n/u, 'the sandbox is counted');
    expectNoFaults(operator, BAD);
  });

  it('health and capacity are those of this machine, with the sandbox and its disk', async () => {
    const { page } = operator;
    await operator.goTo('/operator');
    await page.getByText('serves', { exact: true }).waitFor();
    const { version, region, controls, runners } = await readHost();
    const [of, ...others] = runners;
    const runner = of?.measured;
    assert.ok(of && runner);
    assert.deepEqual([others, of.state, of.address, of.control], [[], 'connected', null, controls[0]?.id]);
    assert.deepEqual([controls.length, controls[0]?.leading, controls[0]?.answers], [1, true, true]);
    const { vcpus, mem_mib: memory } = runner;
    assert.deepEqual([vcpus.promised, runner.sandboxes['running'], runner.disks.attached], [1, 1, 1]);
    const hostMiB = totalmem() / MIB;
    assert.ok(memory.promised >= 256 && memory.promised < 1024, `${memory.promised} MiB promised`);
    assert.ok(runner.mem_available_mib > 0 && runner.mem_available_mib < hostMiB);
    const { bavail, bsize } = await statfs(service.dataDir);
    const freeMiB = (bavail * bsize) / MIB;
    assert.ok(Math.abs(runner.disk_free_mib - freeMiB) < 2048, `${runner.disk_free_mib} of ${freeMiB} MiB`);
    assert.equal(await readFact(page, 'Version'), version);
    assert.equal(await readFact(page, 'Region'), region);
    assert.equal(await readFact(page, 'QEMU'), runner.versions.qemu);
    assert.equal(await readFact(page, 'Guest kernel'), runner.versions.kernel);
    assert.equal(await readFact(page, 'Runners'), '1');
    assert.equal(await page.getByRole('table', { name: 'Runners' }).count(), 0);
    assert.equal(await readFact(page, 'VMs'), '1 running');
    assert.equal(await readFact(page, 'Persistent disks'), '1 attached');
    assert.equal(await readFact(page, 'Warm VMs'), 'off');
    assert.match(await readFact(page, 'Disk space'), /^[\d.,]+ [GT]iB free, [\d.,]+ [MG]iB kept$/u);
    const cpus = page.getByRole('meter', { name: 'Virtual CPUs of VMs' });
    assert.equal(await cpus.getAttribute('aria-valuetext'), `1 of ${vcpus.limit.toLocaleString('en-US')}`);
    const promised = page.getByRole('meter', { name: 'Memory of VMs' });
    assert.equal(await promised.getAttribute('aria-valuenow'), String(memory.promised));
    assert.equal(await promised.getAttribute('aria-valuemax'), String(memory.limit));
    expectNoFaults(operator, BAD);
  });

  it('a limit that is changed is shown after a reload, and in force', async () => {
    const { page } = operator;
    const changing = await openDialog('Change the limits');
    const save = changing.getByRole('button', { name: 'Save' });
    assert.equal(await save.isDisabled(), true, 'nothing has changed');
    const disks = changing.getByLabel('Persistent disks');
    await disks.fill('1x');
    await changing.getByText('Persistent disks must be a whole number').waitFor();
    assert.equal(await disks.getAttribute('aria-invalid'), 'true');
    assert.equal(await save.isDisabled(), true, 'a bad limit can be saved');
    await disks.fill('99999999999');
    await save.click();
    await changing.getByRole('alert').getByText(/disks/u).waitFor();
    await disks.fill('1');
    await changing.getByLabel('Sandboxes', { exact: true }).fill('1');
    await changing.getByLabel('Size of snapshots in GiB').fill('1.5');
    await save.click();
    const listed = 'sandboxes 1, disks 1, snapshots 1.5 GiB';
    await rowOfTenant().getByText(listed).waitFor();
    await page.reload();
    await rowOfTenant().getByText(listed).waitFor();
    const { limits } = await readTenant();
    const set = Object.entries(limits).filter(([, value]) => value !== null);
    assert.deepEqual(Object.fromEntries(set), { sandboxes: 1, disks: 1, snapshot_bytes: 1.5 * 2 ** 30 });

    const refusal = await pollUntil(IN_FORCE, async () => {
      try {
        await client.createDisk({ name: 'second', sizeGb: 1 });
      } catch (error) {
        return error as CoppiceError;
      }
      await client.deleteDisk('second');
      return undefined;
    });
    assert.deepEqual([refusal.status, refusal.code], [429, 'capacity']);
    await assert.rejects(client.sandboxes.create(SMALL), (error: CoppiceError) => error.code === 'capacity');

    await (await openDialog('Change the limits')).getByLabel('Persistent disks').fill('');
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await rowOfTenant().getByText('sandboxes 1, snapshots 1.5 GiB').waitFor();
    assert.equal((await readTenant()).limits.disks, null);
    expectNoFaults(operator, BAD);
  });

  it('the list is searched by name and id, and the page read again when the sandbox has ended', async () => {
    const { page } = operator;
    await sandbox.destroy();
    await page.getByRole('button', { name: 'Read again' }).click();
    const vms = page.locator('dl > div').filter({ hasText: /^VMs/u });
    await vms.getByText('none').waitFor();
    const search = page.getByRole('searchbox', { name: 'Search organizations' });
    await search.fill('example');
    const rows = page.getByRole('table', { name: 'Organizations' }).getByRole('row');
    await page.getByText('1 of 2', { exact: true }).waitFor();
    assert.equal(await rows.count(), 2, 'the head, and one organization');
    await search.fill(tenantId.slice(-8));
    await rowOfTenant().waitFor();
    await search.fill('nothing like it');
    await page.getByText('No organization matches').waitFor();
    await search.fill('');
    await rowOfTenant().waitFor();
    expectNoFaults(operator, BAD);
  });

  for (const scheme of ['light', 'dark'] as const)
    it(`page and dialogs are readable by everyone in ${scheme}, and no wider than a phone`, async () => {
      const { page } = operator;
      await page.emulateMedia({ colorScheme: scheme });
      for (const [width, height] of [
        [1360, 860],
        [390, 844],
      ] as const) {
        await page.setViewportSize({ width, height });
        await operator.goTo('/operator');
        await rowOfTenant().waitFor();
        await page.getByText('serves', { exact: true }).waitFor();
        await expectReadable(page, width);
        for (const [entry, field] of [
          ['Change the limits', 'Virtual CPUs'],
          ['Grant or take back credit', 'Amount in USD'],
        ] as const) {
          const dialog = await openDialog(entry);
          await dialog.getByLabel(field).fill('-1');
          await dialog.getByText(`${field} must be`).waitFor();
          await expectReadable(page, width);
          await dialog.getByRole('button', { name: 'Cancel' }).click();
        }
      }
      expectNoFaults(operator, BAD);
    });

  it('owners of other organizations see no link to it, and get nothing', async () => {
    const { page } = tenant;
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await tenant.goTo('/operator');
    await page.getByText('You do not operate this service').waitFor();
    const navigation = page.getByRole('navigation', { name: 'Main' });
    await navigation.getByRole('link', { name: 'People' }).waitFor();
    assert.equal(await navigation.getByRole('link', { name: 'Operator' }).count(), 0);
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox', { name: /^Search pages/u }).fill('operator');
    await page.getByText('Nothing has these letters.').waitFor();
    assert.deepEqual(
      asked.filter((url) => url.includes(OPERATOR)),
      [],
    );
    const before = await readTenant();
    for (const [method, path, body] of [
      ['GET', 'host'],
      ['GET', 'organizations'],
      ['PATCH', `organizations/${tenantId}/limits`, { sandboxes: 1000 }],
      ['POST', `organizations/${tenantId}/credit`, { cents: 1000 }],
    ] as const) {
      const answer = await tenant.call(method, `${OPERATOR}/${path}`, body);
      assert.equal(answer.status, 403, path);
      assert.deepEqual(Object.keys(answer.body as object), ['error'], path);
    }
    const { limits, credit_left_cents: left } = await readTenant();
    assert.deepEqual([limits, left], [before.limits, before.credit_left_cents]);
    expectNoFaults(tenant, FORBIDDEN);
  });
});

async function readFact(page: Page, name: string): Promise<string> {
  const term = page.locator('dt').getByText(name, { exact: true });
  return page.locator('dl > div').filter({ has: term }).locator('dd').innerText();
}

async function expectReadable(page: Page, width: number): Promise<void> {
  assert.deepEqual(await findBarriers(page), []);
  assert.ok((await page.evaluate<number>('document.documentElement.scrollWidth')) <= width);
}

function expectNoFaults(visitor: Visitor, meant: RegExp): void {
  assert.deepEqual(
    visitor.faults.filter((fault) => !meant.test(fault)),
    [],
  );
}
