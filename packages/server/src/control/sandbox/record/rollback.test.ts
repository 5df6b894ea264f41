/** A rollback is done once and reported as it was done, whatever is late, lost or killed in between. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { startHarness, waitFor, type Answer, type ControlHarness } from '../../testing/control-harness.ts';
import { STRETCH_USAGE } from '../../testing/fakes/fake-captures.ts';

const CAPTURE_DEADLINE_MS = 1_500;
/** CPU time of every VM at its end: see FakeRunner. */
const END_CPU_MS = 1234;

const harness = await startHarness({
  captureDeadlineMs: CAPTURE_DEADLINE_MS,
  runnerOutageDeadlineMs: 1_000,
  shutdownDeadlineMs: 100,
});
afterEach(() => harness.runner.captures.reset());
test.after(() => harness[Symbol.asyncDispose]());

const { captures } = harness.runner;

/** A sandbox with snapshots of it. */
class Subject {
  readonly id: string;
  readonly snapshots: string[];

  constructor(id: string, snapshots: string[]) {
    this.id = id;
    this.snapshots = snapshots;
  }

  static async create(snapshots = 2): Promise<Subject> {
    const { id } = await harness.create();
    const ids: string[] = [];
    for (let count = 0; count < snapshots; count += 1)
      ids.push((await harness.call('POST', `/v1/runs/${id}/snapshot`)).body.id);
    return new Subject(id, ids);
  }

  post(what: string, body?: object, key?: string): Promise<Answer> {
    const headers: Record<string, string> = key === undefined ? {} : { 'idempotency-key': key };
    return harness.call('POST', `/v1/runs/${this.id}/${what}`, { ...(body && { body }), headers });
  }

  rollBack(index: number, key?: string): Promise<Answer> {
    return this.post('rollback', { snapshot_id: this.snapshots[index] }, key);
  }

  /** Snapshots to which the VM was really rolled back, in order. */
  get done(): (string | undefined)[] {
    return (captures.rollbacks.get(this.id) ?? []).map(({ capture_id }) => capture_id);
  }

  /** Snapshots to which the sandbox was rolled back according to its audit log. */
  async told(): Promise<unknown[]> {
    const text = await (await harness.fetch('GET', `/v1/runs/${this.id}/audit`)).text();
    const entries = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { event: string; data: { snapshot_id?: string } });
    return entries.filter(({ event }) => event === 'sandbox.rolled_back').map(({ data }) => data.snapshot_id);
  }

  /** Asserts that the audit log has the rollbacks that were really done, and that these are the expected ones. */
  async assertTold(...indexes: number[]): Promise<void> {
    const expected = indexes.map((index) => this.snapshots[index]);
    assert.deepEqual({ done: this.done, told: await this.told() }, { done: expected, told: expected });
  }

  async waitUntilIdle(): Promise<void> {
    await harness.waitForRecord(this.id, ({ operation }) => operation === null);
  }

  /** CPU time of all its VMs. */
  async destroy(): Promise<number> {
    return (await harness.call('DELETE', `/v1/runs/${this.id}`)).body.cpu_ms;
  }
}

/** Holds the runner before a rollback, until the test releases it. */
function holdRollbacks(): { reached: Promise<void>; release: () => void } {
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  captures.onRollback = () => {
    reached.resolve();
    return gate.promise;
  };
  return { reached: reached.promise, release: gate.resolve };
}

/** Starts a control whose reconciler does not run: only a request resolves a call that got no answer. */
function startUnreconciled(): Promise<ControlHarness> {
  return startHarness({ captureDeadlineMs: CAPTURE_DEADLINE_MS, reconcileIntervalMs: 3_600_000 });
}

async function createWithSnapshot(at: ControlHarness) {
  const { id } = await at.create();
  const post = (what: string, body?: object): Promise<Answer> =>
    at.call('POST', `/v1/runs/${id}/${what}`, body === undefined ? {} : { body });
  return { id, post, snapshot: (await post('snapshot')).body.id as string };
}

async function restartControl(): Promise<void> {
  await harness.stopControl();
  await harness.startControl();
}

test('a rollback whose answer is lost is not done twice', async () => {
  const subject = await Subject.create();
  captures.beforeAnswer = async () => {
    captures.reset();
    await harness.runner.stop();
    await harness.runner.start();
  };
  assert.equal((await subject.rollBack(0)).status, 200);
  await subject.assertTold(0);
  assert.equal(await subject.destroy(), STRETCH_USAGE.cpu_ms + END_CPU_MS);
});

test('a rollback past its deadline is 504 without Retry-After, and is not confused with the next one', async () => {
  const subject = await Subject.create();
  const { release } = holdRollbacks();
  const late = await subject.rollBack(0);
  assert.deepEqual([late.status, late.body.error.code], [504, 'outcome_unknown']);
  assert.equal(late.headers.get('retry-after'), null);
  assert.equal((await harness.call('GET', `/v1/runs/${subject.id}`)).body.operation, 'rolling_back');
  const next = subject.rollBack(1);
  release();
  assert.equal((await next).status, 200);
  await subject.assertTold(0, 1);
  assert.equal(await subject.destroy(), 2 * STRETCH_USAGE.cpu_ms + END_CPU_MS);
});

test('the next control finishes a rollback of a killed control, and reports it as it was', async () => {
  const subject = await Subject.create();
  const { reached, release } = holdRollbacks();
  const cut = subject.rollBack(0).catch(() => undefined);
  await reached;
  await restartControl();
  await cut;
  assert.equal((await harness.call('GET', `/v1/runs/${subject.id}`)).body.operation, 'rolling_back');
  const next = subject.rollBack(1);
  release();
  assert.equal((await next).status, 200);
  await subject.assertTold(0, 1);
  assert.equal(await subject.destroy(), 2 * STRETCH_USAGE.cpu_ms + END_CPU_MS);
});

test('a rollback whose answer was lost when control was killed is committed, not done again', async () => {
  const subject = await Subject.create();
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  captures.beforeAnswer = () => {
    reached.resolve();
    return gate.promise;
  };
  const cut = subject.rollBack(0).catch(() => undefined);
  await reached.promise;
  await harness.stopControl();
  captures.reset();
  gate.resolve();
  await harness.startControl();
  await cut;
  await subject.waitUntilIdle();
  await subject.assertTold(0);
  assert.equal(await subject.destroy(), STRETCH_USAGE.cpu_ms + END_CPU_MS);
});

test('a retry with an Idempotency-Key is answered, also by the next control and without the snapshot', async () => {
  const subject = await Subject.create();
  const key = randomUUID();
  const { reached, release } = holdRollbacks();
  const cut = subject.rollBack(0, key).catch(() => undefined);
  await reached;
  await restartControl();
  await cut;
  release();
  await subject.waitUntilIdle();
  await harness.call('DELETE', `/v1/snapshots/${subject.snapshots[0]}`);
  const again = await subject.rollBack(0, key);
  assert.deepEqual([again.status, again.body.id], [200, subject.id]);
  assert.equal(again.headers.get('idempotency-replayed'), 'true');
  await subject.assertTold(0);
  assert.equal((await subject.rollBack(1, key)).status, 422);
});

test('a retry with an Idempotency-Key joins a rollback past its deadline, which is done once', async () => {
  const subject = await Subject.create();
  const key = randomUUID();
  const { release } = holdRollbacks();
  assert.equal((await subject.rollBack(0, key)).status, 504);
  const again = subject.rollBack(0, key);
  release();
  assert.equal((await again).status, 200);
  await subject.assertTold(0);
});

test('a refused rollback is forgotten: a retry with its key tries it again', async () => {
  const subject = await Subject.create();
  const key = randomUUID();
  captures.onRollback = () => {
    throw new AppError('capacity', 'no room');
  };
  assert.equal((await subject.rollBack(0, key)).status, 429);
  assert.equal((await harness.call('GET', `/v1/runs/${subject.id}`)).body.operation, null);
  captures.reset();
  assert.equal((await subject.rollBack(0, key)).status, 200);
  await subject.assertTold(0);
});

test('uses of a sandbox wait until its rollback is finished, and the rollback does not undo them', async () => {
  const subject = await Subject.create();
  const { reached, release } = holdRollbacks();
  const cut = subject.rollBack(0).catch(() => undefined);
  await reached;
  await restartControl();
  await cut;
  let doneBefore = -1;
  harness.runner.onExec = (command) => {
    doneBefore = subject.done.length;
    command.exit(0);
  };
  const used = subject.post('exec', { command: 'true' });
  const forked = subject.post('fork', { count: 1 });
  await waitFor('other answers', async () => (await harness.call('GET', '/v1/runs')).status === 200);
  assert.equal(doneBefore, -1);
  release();
  assert.deepEqual([(await used).status, (await forked).status], [200, 201]);
  assert.equal(doneBefore, 1);
});

test('while a rollback cannot be finished, uses of the sandbox are answered to try again', async () => {
  const subject = await Subject.create();
  const { release } = holdRollbacks();
  assert.equal((await subject.rollBack(0)).status, 504);
  await harness.runner.stop();
  for (const [what, body] of [
    ['exec', { command: 'true' }],
    ['fork', {}],
    ['rollback', { snapshot_id: subject.snapshots[1] }],
  ] as const) {
    const answer = await subject.post(what, body);
    assert.deepEqual([answer.status, answer.headers.get('retry-after')], [503, '2'], what);
  }
  release();
  await harness.runner.start();
  await subject.waitUntilIdle();
  await subject.assertTold(0);
  assert.equal((await subject.post('exec', { command: 'true' })).status, 200);
});

test('a rollback that never reached the runner is 503, and is not done later', async () => {
  const subject = await Subject.create();
  await harness.runner.stop();
  const answer = await subject.rollBack(0);
  assert.deepEqual([answer.status, answer.headers.get('retry-after')], [503, '2']);
  await harness.runner.start();
  await subject.waitUntilIdle();
  assert.equal((await subject.post('exec', { command: 'true' })).status, 200);
  await subject.assertTold();
});

test('a sandbox that ends before its rollback was answered has the rollback in its log and on its bill', async () => {
  for (const [reason, status] of [
    ['destroyed', 'destroyed'],
    ['guest_panic', 'failed'],
  ] as const) {
    const subject = await Subject.create();
    const gate = Promise.withResolvers<void>();
    captures.beforeAnswer = () => gate.promise;
    const late = await subject.rollBack(0);
    assert.equal(late.status, 504);
    harness.runner.endVm(subject.id, reason);
    gate.resolve();
    captures.reset();
    await harness.waitForRecord(subject.id, (record) => record.status === status);
    await subject.assertTold(0);
    const [ended] = (await harness.call('GET', '/v1/runs/history?limit=1')).body;
    assert.deepEqual([ended.id, ended.cpu_ms], [subject.id, STRETCH_USAGE.cpu_ms + END_CPU_MS]);
  }
});

test('an end before a rollback is done is reported without the rollback', async () => {
  const subject = await Subject.create();
  const { release } = holdRollbacks();
  assert.equal((await subject.rollBack(0)).status, 504);
  harness.runner.endVm(subject.id, 'guest_shutdown');
  await harness.waitForRecord(subject.id, (record) => record.status === 'destroyed');
  assert.deepEqual(await subject.told(), []);
  release();
});

test('a rollback of a sandbox that turns out to be hibernated is refused, and the sandbox can be resumed', async () => {
  await using slow = await startUnreconciled();
  const { id, post, snapshot } = await createWithSnapshot(slow);
  slow.runner.captures.beforeAnswer = (action) =>
    action === 'hibernate' ? Promise.withResolvers<void>().promise : Promise.resolve();
  assert.equal((await post('hibernate')).status, 504);
  assert.equal(slow.runner.vms.has(id), false, 'it was saved');
  const refused = await post('rollback', { snapshot_id: snapshot });
  assert.deepEqual([refused.status, refused.body.error.code], [409, 'invalid_state']);
  const resumed = await post('resume');
  assert.deepEqual([resumed.status, resumed.body.status], [200, 'running'], JSON.stringify(resumed.body));
});

test('a use of a sandbox finishes its rollback first, without waiting for the reconciler', async () => {
  await using slow = await startUnreconciled();
  const { id, post, snapshot } = await createWithSnapshot(slow);
  const gate = Promise.withResolvers<void>();
  slow.runner.captures.onRollback = () => gate.promise;
  assert.equal((await post('rollback', { snapshot_id: snapshot })).status, 504);
  const doneBefore: (number | undefined)[] = [];
  slow.runner.onExec = (command) => {
    doneBefore.push(slow.runner.captures.rollbacks.get(id)?.length);
    command.exit(0);
  };
  const uses = [1, 2, 3].map(() => post('exec', { command: 'true' }));
  await slow.waitForRecord(id, ({ operation }) => operation === 'rolling_back');
  gate.resolve();
  assert.deepEqual(
    (await Promise.all(uses)).map(({ status }) => status),
    [200, 200, 200],
  );
  assert.deepEqual(doneBefore, [1, 1, 1]);
});
