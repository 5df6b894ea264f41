/** The state that a killed control leaves, and how the next control repairs it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError, type SandboxRecord } from '@coppice/contract';
import type { CaptureInfo } from '../../lib/protocol/runner-protocol.ts';
import type { SandboxUpdate } from '../sandbox/record/sandbox-tables.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { copySandbox, forceState } from '../testing/sandbox-row.ts';
import { STRETCH_USAGE } from '../testing/fakes/fake-captures.ts';

const post = (harness: ControlHarness, id: string, what: string) =>
  harness.call('POST', `/v1/runs/${id}/${what}`);
const exec = (harness: ControlHarness, id: string) =>
  harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });

async function setRow(harness: ControlHarness, id: string, change: SandboxUpdate): Promise<void> {
  await using db = harness.openDatabase();
  await db.updateTable('sandboxes').set(change).where('id', '=', id).execute();
}

/** Creates a hibernated sandbox. Returns its id and the id of its capture. */
async function hibernate(harness: ControlHarness): Promise<{ id: string; captureId: string }> {
  const { id } = await harness.create();
  await post(harness, id, 'hibernate');
  const capture = [...harness.runner.captures.saved.values()].find(({ vm_id }) => vm_id === id);
  return { id, captureId: capture?.id ?? '' };
}

async function restart(harness: ControlHarness): Promise<void> {
  await harness.stopControl();
  await harness.startControl();
}

/** Resets the record as if control had not learned of the hibernation: nothing is stored, and no stretch is billed. */
async function unhibernate(harness: ControlHarness, id: string, captureId: string): Promise<void> {
  {
    await using db = harness.openDatabase();
    await db.deleteFrom('billing_segments').where('sandbox_id', '=', id).execute();
  }
  const unwritten = { hibernated_at: null, billed_ms: 0, cpu_ms: 0 };
  await setRow(harness, id, forceState({ status: 'running', hibernation_id: captureId, ...unwritten }));
}

test('a hibernation whose answer was lost is found, and its use of the machine is counted once', async () => {
  await using harness = await startHarness();
  const { id, captureId } = await hibernate(harness);
  await unhibernate(harness, id, captureId);
  await restart(harness);
  await harness.waitForRecord(id, (record) => record.status === 'hibernated');
  assert.equal((await post(harness, id, 'resume')).status, 200);
  const { body } = await harness.call('DELETE', `/v1/runs/${id}`);
  assert.equal(body.cpu_ms, STRETCH_USAGE.cpu_ms + 1234);
});

/** Stops control when the runner has carried out its request but not answered, and then starts the next control. */
async function dieUnanswered(harness: ControlHarness, id: string, what: string): Promise<void> {
  const done = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.beforeAnswer = () => {
    done.resolve();
    return gate.promise;
  };
  const asked = post(harness, id, what).catch(() => undefined);
  await done.promise;
  await harness.stopControl();
  gate.resolve();
  await asked;
  harness.runner.captures.reset();
  await harness.startControl();
}

const SOON = { shutdownDeadlineMs: 20 };

test('a control that dies in the middle of a hibernation leaves a hibernated sandbox', async () => {
  await using harness = await startHarness(SOON);
  const { id } = await harness.create();
  await dieUnanswered(harness, id, 'hibernate');
  await harness.waitForRecord(id, (record) => record.status === 'hibernated');
  assert.equal((await post(harness, id, 'resume')).status, 200);
  assert.equal((await exec(harness, id)).status, 200);
});

test('a control that dies in the middle of a resume leaves a running sandbox', async () => {
  await using harness = await startHarness(SOON);
  const { id } = await hibernate(harness);
  await dieUnanswered(harness, id, 'resume');
  await harness.waitForRecord(id, (record) => record.status === 'running');
  await waitFor('the capture to be removed', () => !harness.runner.captures.has(id));
});

test('a control that dies in the middle of a snapshot or a fork leaves nothing of it', async () => {
  await using harness = await startHarness(SOON);
  const { id } = await harness.create();
  await dieUnanswered(harness, id, 'snapshot');
  await waitFor('the snapshot to be removed', () => harness.runner.captures.saved.size === 0);
  assert.deepEqual((await harness.call('GET', '/v1/snapshots')).body, []);
  await dieUnanswered(harness, id, 'fork');
  await waitFor('the child to be removed', () => harness.runner.vms.size === 1);
  // The VM is removed first, then the record is updated.
  let failed: SandboxRecord[] = [];
  await waitFor('the record of the child', async () => {
    failed = (await harness.call('GET', '/v1/runs?status=failed')).body as SandboxRecord[];
    return failed.length === 1;
  });
  assert.equal(failed[0]?.status_reason, 'control_restarted');
  assert.equal((await exec(harness, id)).status, 200);
});

test('a sandbox whose hibernation was never made keeps running and can be hibernated', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  await setRow(harness, id, { hibernation_id: `hib${'a'.repeat(20)}` });
  await restart(harness);
  assert.equal((await exec(harness, id)).status, 200);
  assert.equal((await post(harness, id, 'hibernate')).status, 200);
  assert.equal((await post(harness, id, 'resume')).status, 200);
});

test('a VM that was lost after a hibernation was requested is lost', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  await setRow(harness, id, { hibernation_id: `hib${'a'.repeat(20)}` });
  await harness.stopControl();
  harness.runner.vms.delete(id);
  await harness.startControl();
  await harness.waitForRecord(id, (record) => record.status_reason === 'vm_lost');
});

test('a resume whose answer was lost is found, and its capture is removed', async () => {
  await using harness = await startHarness();
  const { id, captureId } = await hibernate(harness);
  await harness.runner.captures.restore(id, { capture_id: captureId });
  await harness.waitForRecord(id, (record) => record.status === 'running');
  assert.equal((await exec(harness, id)).status, 200);
  await waitFor('the capture to be removed', () => !harness.runner.captures.has(id));
});

test('a VM that is still being resumed does not count as running', async () => {
  await using harness = await startHarness();
  const { id, captureId } = await hibernate(harness);
  const vm = await harness.runner.captures.restore(id, { capture_id: captureId });
  harness.runner.vms.set(id, { ...vm, state: 'creating' });
  await restart(harness);
  await harness.create();
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'hibernated');
  harness.runner.vms.set(id, vm);
  await harness.waitForRecord(id, (record) => record.status === 'running');
});

test('a sandbox that is destroyed right after a hibernation without an answer is billed for what it used', async () => {
  await using harness = await startHarness();
  const { id, captureId } = await hibernate(harness);
  await unhibernate(harness, id, captureId);
  await restart(harness);
  const { status, body } = await harness.call('DELETE', `/v1/runs/${id}`);
  assert.equal(status, 200);
  assert.equal(body.cpu_ms, STRETCH_USAGE.cpu_ms);
  assert.ok(!harness.runner.captures.has(id));
});

test('captures that no record names are removed after a grace, and those of records stay', async () => {
  await using harness = await startHarness();
  const { id, captureId } = await hibernate(harness);
  const other = await harness.create();
  const snapshot = (await post(harness, other.id, 'snapshot')).body.id as string;
  const mine = harness.runner.captures.saved.get(captureId);
  assert.ok(mine);
  const plant = (capture: Partial<CaptureInfo>): string => {
    const planted = { ...mine, ...capture };
    harness.runner.captures.saved.set(planted.id, planted);
    return planted.id;
  };
  const orphans = [
    plant({ id: `hib${'1'.repeat(20)}` }),
    plant({ id: `hib${'2'.repeat(20)}`, vm_id: other.id }),
    plant({ id: `hib${'3'.repeat(20)}`, vm_id: `run${'3'.repeat(20)}` }),
    plant({ id: `snap${'4'.repeat(20)}`, kind: 'snapshot', vm_id: other.id }),
  ];
  const plantedAt = performance.now();
  await waitFor('them to be removed', () => orphans.every((one) => !harness.runner.captures.saved.has(one)));
  assert.ok(performance.now() - plantedAt >= 250, 'not before the grace');
  assert.deepEqual([...harness.runner.captures.saved.keys()].toSorted(), [captureId, snapshot].toSorted());
  assert.equal((await post(harness, id, 'resume')).status, 200);
});

test('a capture of a sandbox that another process has hibernated stays', async () => {
  await using harness = await startHarness();
  const { id, captureId } = await hibernate(harness);
  const mine = harness.runner.captures.saved.get(captureId);
  assert.ok(mine);
  const theirs = { ...mine, id: `hib${'5'.repeat(20)}`, vm_id: `run${'5'.repeat(20)}` };
  const orphan = { ...mine, id: `hib${'6'.repeat(20)}`, vm_id: `run${'6'.repeat(20)}` };
  await using db = harness.openDatabase();
  await copySandbox(db, id, { id: theirs.vm_id, hibernation_id: theirs.id });
  harness.runner.captures.saved.set(theirs.id, theirs);
  harness.runner.captures.saved.set(orphan.id, orphan);
  await waitFor('the orphan to be removed', () => !harness.runner.captures.saved.has(orphan.id));
  assert.ok(harness.runner.captures.saved.has(theirs.id));
});

test('a capture that cannot be removed yet does not hold up the removal of others', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  const ids: string[] = [];
  for (let count = 0; count < 2; count += 1) ids.push((await post(harness, id, 'snapshot')).body.id);
  const [used = '', free = ''] = ids;
  harness.runner.captures.onRemove = (captureId) => {
    if (captureId === used) throw new AppError('invalid_state', 'something is being made from it');
  };
  for (const one of ids) assert.equal((await harness.call('DELETE', `/v1/snapshots/${one}`)).status, 204);
  await hibernate(harness);
  assert.ok(harness.runner.captures.saved.has(used));
  assert.ok(!harness.runner.captures.saved.has(free));
  harness.runner.captures.reset();
  await waitFor('it to be removed', () => !harness.runner.captures.saved.has(used));
});

test('the capture of a hibernation under way is not removed as an orphan', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.beforeAnswer = () => gate.promise;
  const hibernating = post(harness, id, 'hibernate');
  await waitFor('the capture', () => harness.runner.captures.has(id));
  const rounds = () => harness.runner.requests.filter((request) => request === 'GET /captures').length;
  const before = rounds();
  await waitFor('many rounds of the reconciler', () => rounds() > before + 6);
  gate.resolve();
  assert.equal((await hibernating).body.status, 'hibernated');
  assert.ok(harness.runner.captures.has(id));
});

for (const status of ['creating', 'deleting'] as const) {
  test(`a snapshot that was left ${status} is removed, with or without its capture`, async () => {
    await using harness = await startHarness();
    const { id } = await harness.create();
    const ids: string[] = [];
    for (let count = 0; count < 3; count += 1) ids.push((await post(harness, id, 'snapshot')).body.id);
    const [withCapture = '', without = '', whole = ''] = ids;
    await harness.stopControl();
    await harness.startControl();
    {
      await using db = harness.openDatabase();
      await db.updateTable('snapshots').set({ status }).where('id', 'in', [withCapture, without]).execute();
    }
    harness.runner.captures.saved.delete(without);
    await restart(harness);
    await using db = harness.openDatabase();
    await waitFor('their records to be gone', async () => {
      const rows = await db.selectFrom('snapshots').select('id').execute();
      return rows.length === 1 && rows[0]?.id === whole;
    });
    assert.deepEqual([...harness.runner.captures.saved.keys()], [whole]);
  });
}

test('a complete snapshot whose files are missing is kept: they may come back', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  const snapshot = (await post(harness, id, 'snapshot')).body.id as string;
  const capture = harness.runner.captures.saved.get(snapshot);
  assert.ok(capture);
  harness.runner.captures.saved.delete(snapshot);
  await restart(harness);
  const rounds = () => harness.runner.requests.filter((request) => request === 'GET /captures').length;
  const before = rounds();
  await waitFor('many rounds of the reconciler', () => rounds() > before + 6);
  harness.runner.captures.saved.set(snapshot, capture);
  const restored = await harness.call('POST', '/v1/runs/restore', { body: { snapshot_id: snapshot } });
  assert.equal((restored.body as SandboxRecord).status, 'running');
});
