/**
 * Two controls, three runners, of which two have wrong clocks, PostgreSQL and an S3 server in network namespaces. Each operation on sandboxes is held at a named
 * step, and there a machine or the network fails. After the repair each repeated request is served once, no sandbox is lost, and
 * SQL, rosters, processes, objects, audit logs and bills agree.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import type { Answer } from '../fixtures/api/api.ts';
import { Holds } from '../fixtures/faults/holds.ts';
import { isPassing } from '../fixtures/faults/kill-groups.ts';
import { assertStatus, callThrough, insistThrough } from '../fixtures/machines/cluster-api.ts';
import { ClusterChecker } from '../fixtures/machines/cluster-state.ts';
import { findContradictions } from '../fixtures/machines/checker.ts';
import { Cluster, type Machine } from '../fixtures/machines/cluster.ts';
import { describeCase, FAULT_CASES, type FaultCase } from '../fixtures/machines/fault-cases.ts';
import {
  OPERATION_STEPS,
  Operations,
  type Operation,
  type OperationName,
} from '../fixtures/machines/fault-operations.ts';
import { FAULTS, findOwner } from '../fixtures/machines/machine-faults.ts';
import { Guest } from '../fixtures/machines/marked-guest.ts';
import { logEnd } from '../fixtures/service/log-end.ts';
import { IS_LONG } from '../fixtures/test-size.ts';

/** Of runners: nothing may depend on what time a machine of tenants believes it is. */
const CLOCKS = { four: 10 * 60_000, five: -10 * 60_000 };
/** As long as a run gives a file. */
const SUITE_MS = 30 * 60_000;
const FINAL_ANSWER_MS = 60_000;
const ORDER_MS = 60_000;
/** A runner that does not answer is given up after 5 minutes. */
const LOSS_MS = 7 * 60_000;
/** A sandbox is stored soon after its hibernation. */
const STORED_MS = 60_000;

interface Begun {
  name: OperationName;
  operation: Operation;
  answer: Promise<Answer | undefined>;
}

describe('faults of several machines', { concurrency: false, timeout: SUITE_MS }, () => {
  const made = new AsyncDisposableStack();
  let holds: Holds;
  let cluster: Cluster;
  let checker: ClusterChecker;
  let operations: Operations;

  before(async () => {
    holds = made.use(new Holds());
    const env = { COPPICE_FAULT_DIR: holds.directory };
    cluster = made.use(await Cluster.start({ runners: 3, hasNetwork: true, env, clocks: CLOCKS }));
    checker = made.use(new ClusterChecker(cluster));
    operations = new Operations(cluster.controls);
  });
  after(async () => {
    holds?.releaseAll();
    await made.disposeAsync();
  });

  /** Sends the requests, and resolves when each is held at its step. Through both controls: some are forwarded. */
  const holdAll = async (
    { operations: names, column }: FaultCase,
    controls: readonly [Machine, Machine],
    held: DisposableStack,
  ): Promise<Begun[]> => {
    const prepared = [];
    for (const name of names) prepared.push({ name, operation: await operations.begin(name) });
    const begun: Begun[] = [];
    for (const [index, { name, operation }] of prepared.entries()) {
      const step = OPERATION_STEPS[name][column];
      assert.ok(step !== undefined);
      const hold = held.use(holds.hold(step));
      const answer = callThrough(controls[index % 2 === 0 ? 0 : 1], operation.request);
      begun.push({ name, operation, answer });
      // Some steps come after the answer.
      const early = answer.then((first) => {
        if (first !== undefined && first.status < 300) return hold.reached();
        throw new Error(`${name} did not reach ${step}: ${first?.status} ${first?.text}`);
      });
      await Promise.race([hold.reached(), early]);
    }
    return begun;
  };

  /** Resolves when the fault is repaired, and all requests are answered. */
  const strike = async (faultCase: FaultCase): Promise<Begun[]> => {
    const [owner, other] = await findOwner(cluster, checker.db);
    using held = new DisposableStack();
    const begun = await holdAll(faultCase, [owner, other], held);
    const answered = Promise.all(begun.map(({ answer }) => answer));
    const release = (): void => held.dispose();
    await FAULTS[faultCase.fault]({ cluster, db: checker.db, owner, other, release, answered });
    await answered;
    return begun;
  };

  /** The client repeats the request as long as an answer says that it should, or none came. */
  const settle = async ({ name, operation, answer }: Begun): Promise<string[]> => {
    try {
      const first = await answer;
      const isFair = isPassing(first) || (first?.status ?? 0) < 300;
      assert.ok(isFair, `the first answer: ${first?.status} ${first?.text}`);
      await operation.verify(await insistThrough(cluster.controls, operation.request, FINAL_ANSWER_MS));
      return [];
    } catch (error) {
      return [`${name}: ${String(error)}`];
    }
  };

  const describeLogs = (): string =>
    [...cluster.controls, ...cluster.runners].map(({ name, log }) => `${name}: ${logEnd(log)}`).join('\n');

  for (const faultCase of FAULT_CASES)
    it(describeCase(faultCase), async () => {
      const wrong: string[] = [];
      for (const begun of await strike(faultCase)) wrong.push(...(await settle(begun)));
      assert.deepEqual(wrong, [], `${wrong.join('\n')}\n${describeLogs()}`);
      await operations.assertSame();
      await checker.assertInOrder(ORDER_MS);
    });

  if (IS_LONG)
    it('when a machine is lost, its running sandbox fails after 5 minutes, and its stored one resumes elsewhere at once', async () => {
      const [running, resting] = [await Guest.create(cluster.controls), await Guest.create(cluster.controls)];
      assertStatus(await resting.post('hibernate'), 200);
      const { runners, sandboxes } = await checker.assertInOrder(ORDER_MS);
      const at = sandboxes.find(({ id }) => id === running.id)?.runner;
      const machine = cluster.runners[runners.findIndex(({ id }) => id === at)];
      assert.ok(machine);
      await untilStored(checker, resting.id);
      await machine.kill();
      for (const pid of machine.installation.vmPids()) process.kill(pid, 'SIGKILL');
      assertStatus(await resting.post('resume'), 200);
      await resting.assertSame();
      await pollUntil({ step: 'the loss', timeoutMs: LOSS_MS, intervalMs: 5_000 }, async () =>
        (await running.status()) === 'failed' ? true : undefined,
      );
      await resting.assertSame();
      machine.start();
      const after = await checker.assertInOrder(ORDER_MS);
      const lost = after.sandboxes.find(({ id }) => id === running.id);
      assert.equal(lost?.reason, 'vm_lost');
      await resting.destroy();
    });

  it('the checker reads each place: what is changed in one of them contradicts the others', async () => {
    const { db } = checker;
    const { id, billed_ms: billed } = await db
      .selectFrom('sandboxes')
      .select(['id', 'billed_ms'])
      .where('status', '=', 'destroyed')
      .executeTakeFirstOrThrow();
    const now = Date.now();
    const stored = { capture_id: 'snap-none', organization_id: 'o', runner_id: 'r' };
    await db
      .insertInto('capture_objects')
      .values({ ...stored, created_at: now, stored_at: now })
      .execute();
    await db
      .updateTable('sandboxes')
      .set({ billed_ms: billed + 1 })
      .where('id', '=', id)
      .execute();
    const state = await checker.read();
    await db.updateTable('sandboxes').set({ billed_ms: billed }).where('id', '=', id).execute();
    await db.deleteFrom('capture_objects').where('capture_id', '=', 'snap-none').execute();
    const found = findContradictions(state).join('\n');
    assert.match(found, /snap-none is stored by SQL, and the bucket has no manifest of it/u);
    assert.match(found, new RegExp(`${id} is billed for \\d+ ms, its parts are \\d+ ms`, 'u'));
    const running = state.sandboxes.filter(({ status }) => status === 'running').map((one) => one.id);
    assert.ok(running.length > 0);
    assert.deepEqual(new Set(state.runners.flatMap(({ processes }) => processes)), new Set(running));
  });

  it('nothing is left when the last sandbox is destroyed', async () => {
    await operations.destroyAll();
    const { runners } = await checker.assertInOrder(ORDER_MS, { isFinal: true });
    for (const { id, vms, captures } of runners)
      assert.deepEqual({ id, vms, captures }, { id, vms: [], captures: [] });
  });
});

/** Waits until the memory of a hibernated sandbox is in the object store. */
async function untilStored(checker: ClusterChecker, id: string): Promise<void> {
  await pollUntil({ step: `the storing of ${id}`, timeoutMs: STORED_MS, intervalMs: 500 }, async () => {
    const row = await checker.db
      .selectFrom('sandboxes')
      .innerJoin('capture_objects', 'capture_id', 'hibernation_id')
      .select('stored_at')
      .where('sandboxes.id', '=', id)
      .executeTakeFirst();
    return row?.stored_at == null ? undefined : true;
  });
}
