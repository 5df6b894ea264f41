import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { pollUntil } from '../../../lib/waiting/deadline.ts';
import { SlotPool, type SlotPoolOptions } from './slot-pool.ts';

/** A fake kernel: the slots that exist, and the steps that fail next. */
class Kernel {
  readonly slots = new Set<number>();
  readonly batches: number[][] = [];
  restores = 0;
  failures: string[] = [];

  open(options: Partial<SlotPoolOptions> = {}): SlotPool {
    return new SlotPool({
      capacity: 8,
      size: 2,
      found: [],
      create: async (indexes) => {
        for (const index of indexes) this.slots.add(index);
        this.batches.push([...indexes]);
        this.#fail('create');
      },
      remove: async (indexes) => {
        this.#fail('remove');
        for (const index of indexes) this.slots.delete(index);
      },
      restore: async () => {
        this.restores += 1;
        this.#fail('restore');
      },
      log: pino({ level: 'silent' }),
      ...options,
    });
  }

  #fail(step: string): void {
    if (this.failures[0] === step) throw new Error(`cannot ${this.failures.shift() ?? ''}`);
  }
}

async function until(step: string, check: () => boolean): Promise<void> {
  await pollUntil({ step, timeoutMs: 5000, intervalMs: 5 }, () => (check() ? true : undefined));
}

test('slots are made in advance and replaced in batches', async () => {
  const kernel = new Kernel();
  const pool = kernel.open();
  await until('a full pool', () => kernel.slots.size === 2);
  const indexes = await Promise.all(['a', 'b', 'c', 'd'].map((vm) => pool.acquire(vm)));
  assert.deepEqual(indexes, [0, 1, 2, 3]);
  await until('a full pool again', () => kernel.slots.size === 6);
  assert.ok(kernel.batches.length <= 4, JSON.stringify(kernel.batches));
  await pool.close();
});

test('when no slot can be made the caller gets the reason, and the half-made slot is removed', async () => {
  const kernel = new Kernel();
  kernel.failures = ['create'];
  const pool = kernel.open({ size: 0 });
  await assert.rejects(pool.acquire('a'), /cannot create/u);
  await until('removal of the half-made slot', () => kernel.slots.size === 0);
  assert.equal(await pool.acquire('a'), 1, 'slot 0 is in quarantine');
  await pool.close();
});

test('a failed removal is reported and retried', async () => {
  const kernel = new Kernel();
  const pool = kernel.open({ size: 0 });
  await pool.acquire('a');
  kernel.failures = ['remove'];
  await assert.rejects(pool.release('a'), /cannot remove/u);
  await until('removal at the second attempt', () => kernel.slots.size === 0);
  await pool.release('a');
  await pool.close();
});

test('a restore runs before any other step, and is retried until it succeeds', async () => {
  const kernel = new Kernel();
  kernel.failures = ['restore'];
  const pool = kernel.open({ size: 0 });
  await pool.acquire('a');
  assert.equal(kernel.restores, 2);
  pool.doubt();
  await until('another look', () => kernel.restores === 3);
  await pool.close();
});

test('a VM that is released while its slot is made gets none', async () => {
  const kernel = new Kernel();
  const pool = kernel.open({ size: 0 });
  const acquired = assert.rejects(pool.acquire('a'), { code: 'invalid_state' });
  await pool.release('a');
  await acquired;
  await pool.close();
});

test('two calls for one VM get the same slot', async () => {
  const pool = new Kernel().open({ size: 0 });
  assert.deepEqual(await Promise.all([pool.acquire('a'), pool.acquire('a')]), [0, 0]);
  await pool.close();
});

test('closing keeps the slots and rejects waiting callers', async () => {
  const kernel = new Kernel();
  const pool = kernel.open({ size: 1 });
  await until('a full pool', () => kernel.slots.size === 1);
  const waiting = ['a', 'b'].map((vm) => pool.acquire(vm));
  const [first, second] = [waiting[0], assert.rejects(waiting[1]!, { code: 'unavailable' })];
  await pool.close();
  assert.equal(await first, 0);
  await second;
  assert.ok(kernel.slots.has(0));
});
