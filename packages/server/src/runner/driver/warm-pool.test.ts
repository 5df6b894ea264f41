import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import type { AssembledVm, TemplateBlueprint } from './vm-assembly.ts';
import { WarmPool } from './warm-pool.ts';

const blueprint = (templateKey: string): TemplateBlueprint =>
  ({ templateKey }) as unknown as TemplateBlueprint;

/** A pool over stand-ins for VMs, with a clock that the test controls. */
class PoolUnderTest {
  readonly made: string[] = [];
  readonly ended: string[] = [];
  failures = 0;
  nowMs = 0;
  hasRoom = true;
  /** Key of a template that is being built. */
  missing = '';
  readonly pool: WarmPool;

  constructor(limit: number) {
    this.pool = new WarmPool({
      limit,
      prepare: async (wanted) => this.#make(wanted),
      canPrepare: ({ templateKey }) => this.hasRoom && templateKey !== this.missing,
      now: () => this.nowMs,
      log: pino({ level: 'silent' }),
    });
  }

  async #make({ templateKey }: TemplateBlueprint): Promise<AssembledVm> {
    if (this.failures > 0) {
      this.failures -= 1;
      throw new Error('no VM');
    }
    const unit = `${templateKey}${this.made.push(templateKey)}`;
    const driver = { unit, phase: 'creating', end: async () => void this.ended.push(unit) };
    return { driver } as unknown as AssembledVm;
  }

  /** Runs one create. Returns the name of its warm VM instance, if any. */
  async create(templateKey: string): Promise<string | undefined> {
    return this.pool.serve(blueprint(templateKey), async (warm) => warm?.driver.unit);
  }

  async untilSize(size: number): Promise<void> {
    const options = { step: `${size} warm VMs`, timeoutMs: 2000, intervalMs: 1 };
    await pollUntil(options, () => (this.pool.size === size ? true : undefined));
  }
}

test('the first create of a template misses, the next one hits', async () => {
  const under = new PoolUnderTest(4);
  assert.equal(await under.create('a'), undefined);
  await under.untilSize(1);
  assert.equal(await under.create('a'), 'a1');
  await under.untilSize(1);
  await under.pool.close();
});

test('concurrent creates that miss raise the target, up to the limit of the pool', async () => {
  const under = new PoolUnderTest(3);
  await Promise.all(Array.from({ length: 8 }, () => under.create('a')));
  await under.untilSize(3);
  await under.create('b');
  assert.equal(under.pool.size, 3);
  await under.pool.close();
});

test('a create that waits for a template does not stop the refill for others', async () => {
  const under = new PoolUnderTest(2);
  const template = Promise.withResolvers<void>();
  under.missing = 'new';
  const waiting = under.pool.serve(blueprint('new'), () => under.pool.waitWith(() => template.promise));
  await under.create('a');
  await under.untilSize(1);
  assert.equal(await under.create('a'), 'a1');
  template.resolve();
  await waiting;
  await under.pool.close();
});

test('nothing is assembled while a create is running', async () => {
  const under = new PoolUnderTest(2);
  const create = Promise.withResolvers<undefined>();
  const slow = under.pool.serve(blueprint('a'), () => create.promise);
  await under.create('b');
  assert.deepEqual(under.made, []);
  create.resolve(undefined);
  await slow;
  await under.untilSize(2);
  await under.pool.close();
});

test('a template without recent creates keeps no VM', async () => {
  const under = new PoolUnderTest(2);
  await under.create('a');
  await under.untilSize(1);
  under.nowMs += 300_000;
  under.pool.check();
  assert.equal(under.pool.size, 0);
  assert.deepEqual(under.ended, ['a1']);
  await under.pool.close();
});

test('a VM that ended while it waited is not handed out', async () => {
  const under = new PoolUnderTest(1);
  await under.create('a');
  await under.untilSize(1);
  under.pool.drop('a1');
  assert.equal(await under.create('a'), undefined);
  await under.pool.close();
});

test('a refill that lacked room runs when there is room, without another create', async () => {
  const under = new PoolUnderTest(1);
  under.hasRoom = false;
  await under.create('a');
  under.pool.check();
  assert.deepEqual(under.made, []);
  under.hasRoom = true;
  under.pool.check();
  await under.untilSize(1);
  await under.pool.close();
});

test('a failure to assemble stops the refill until a later create or check', async () => {
  const under = new PoolUnderTest(1);
  under.failures = 1;
  await under.create('a');
  await pollUntil({ step: 'the failure', timeoutMs: 2000, intervalMs: 1 }, () =>
    under.failures === 0 ? true : undefined,
  );
  under.nowMs += 10_000;
  await under.create('a');
  await under.untilSize(1);
  await under.pool.close();
});

test('a closed pool is empty, and a pool of size 0 is always empty', async () => {
  const closed = new PoolUnderTest(1);
  await closed.create('a');
  await closed.untilSize(1);
  await closed.pool.close();
  assert.deepEqual(closed.ended, ['a1']);
  const none = new PoolUnderTest(0);
  await none.create('a');
  assert.deepEqual(none.made, []);
  await none.pool.close();
});

test('giving way ends the VM of the template used longest ago, and reports when there is none', async () => {
  const under = new PoolUnderTest(2);
  await under.create('a');
  under.nowMs += 1;
  await under.create('b');
  await under.untilSize(2);
  assert.deepEqual(under.pool.units.toSorted(), ['a1', 'b2']);
  assert.equal(await under.pool.giveWay(), true);
  assert.deepEqual(under.ended, ['a1']);
  assert.equal(await under.pool.giveWay(), true);
  assert.equal(await under.pool.giveWay(), false);
  await under.pool.close();
});

test('the pool is not filled when the machine has little room', async () => {
  const under = new PoolUnderTest(1);
  under.hasRoom = false;
  await under.create('a');
  assert.deepEqual(under.made, []);
  under.hasRoom = true;
  await under.create('a');
  await under.untilSize(1);
  await under.pool.close();
});

test('no VM is kept warm for a failed create', async () => {
  const under = new PoolUnderTest(1);
  await assert.rejects(under.pool.serve(blueprint('a'), async () => Promise.reject(new Error('no image'))));
  await under.create('b');
  await under.untilSize(1);
  assert.deepEqual(under.made, ['b']);
  await under.pool.close();
});

test('no VM is assembled from a template that was evicted', async () => {
  const under = new PoolUnderTest(1);
  const create = Promise.withResolvers<undefined>();
  const slow = under.pool.serve(blueprint('b'), () => create.promise);
  await under.create('a');
  under.pool.forget('a');
  create.resolve(undefined);
  await slow;
  await under.untilSize(1);
  assert.deepEqual(under.made, ['b']);
  await under.pool.close();
});
