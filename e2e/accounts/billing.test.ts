/** Billing of real VMs: running time is billed, and without credit nothing runs. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Coppice, type CoppiceError, type HistoryEntry } from '../../packages/sdk/src/index.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import { API_KEY, type Service } from '../fixtures/service/service.ts';

const SMALL = { image: 'coppice/base:1', memMiB: 256 } as const;
const CREDIT_CENTS = 1;
/** 8 vCPUs cost about 0.0056 cents a second: three of these sandboxes use up the cent in a minute. */
const GREEDY = { image: 'coppice/base:1', vcpus: 8, memMiB: 256, timeout: 0 } as const;

describe('a service with a credit of one cent', () => {
  let service: Service;
  let client: Coppice;

  before(async () => {
    service = await startPrepared({
      instance: 5,
      env: { COPPICE_CREDIT_USD: String(CREDIT_CENTS / 100), COPPICE_CREDIT_GRACE_SECONDS: '2' },
    });
    client = new Coppice({ apiKey: API_KEY, baseUrl: service.address });
  });
  after(() => service[Symbol.asyncDispose]());

  it('bills running time but not hibernated time, the same in every answer', async () => {
    const sandbox = await client.sandboxes.create(SMALL);
    await sandbox.exec('true');
    await sandbox.hibernate();
    const asleep = await client.usage();
    await delay(3000);
    assert.equal((await client.usage()).activeCostCents, asleep.activeCostCents);
    await sandbox.resume();
    assert.equal((await sandbox.exec('echo back')).stdout, 'back\n');
    const destroyed = await sandbox.destroy();
    const [entry] = await client.history();
    assert.ok(entry);
    assert.deepEqual(
      [entry.id, entry.costCents, entry.uptimeMs, entry.cpuMs, entry.memPeakBytes],
      [sandbox.id, destroyed.costCents, destroyed.uptimeMs, destroyed.cpuMs, destroyed.memPeakBytes],
    );
    assert.ok(entry.uptimeMs - entry.billedMs >= 3000, `${entry.uptimeMs} ${entry.billedMs}`);
    const usage = await client.usage();
    assert.deepEqual(
      [usage.activeSandboxes, usage.historySandboxes, usage.totalCostCents, usage.creditCents],
      [0, 1, destroyed.costCents, CREDIT_CENTS],
    );
    assert.equal(await sumOfMonths(entry), entry.billedMs);
  });

  it('refuses to start anything when the credit is used up, and hibernates running sandboxes', async () => {
    const all = await Promise.all([1, 2, 3].map(() => client.sandboxes.create(GREEDY)));
    await service.waitFor('the credit to be used up', 400_000, async () => {
      const { creditLeftCents } = await client.usage();
      return (creditLeftCents ?? 0) <= 0;
    });
    await assert.rejects(
      client.sandboxes.create(SMALL),
      (error: CoppiceError) => error.status === 402 && error.code === 'credit_exhausted',
    );
    await service.waitFor('all to be hibernated', 240_000, async () => {
      const asleep = await client.sandboxes.list({ status: 'hibernated' });
      return asleep.length === all.length;
    });
    for (const greedy of all) {
      await assert.rejects(greedy.resume(), (error: CoppiceError) => error.code === 'credit_exhausted');
      assert.ok((await greedy.destroy()).costCents > 0);
    }
    const { activeCostCents, historySandboxes } = await client.usage();
    assert.deepEqual([activeCostCents, historySandboxes], [0, 1 + all.length]);
  });

  /**
   * Returns the sum over the statements of all months in which the sandbox ran: one at the end of a month is in two.
   */
  async function sumOfMonths({ id, createdAt, destroyedAt }: HistoryEntry): Promise<number> {
    const months = new Set([createdAt.slice(0, 7), destroyedAt.slice(0, 7)]);
    let billedMs = 0;
    for (const month of months) {
      const { lines } = await client.statement(month);
      for (const line of lines) if (line.sandboxId === id) billedMs += line.billedMs;
    }
    return billedMs;
  }
});
