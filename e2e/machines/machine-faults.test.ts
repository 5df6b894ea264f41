/**
 * Two controls, three runners, PostgreSQL and an S3 server in network namespaces. Each operation on sandboxes is held at a named
 * step, and there a machine or the network fails. After the repair each repeated request is served once, no sandbox is lost, and
 * SQL, rosters, processes, objects, audit logs and bills agree.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Answer } from '../fixtures/api/api.ts';
import { Holds } from '../fixtures/faults/holds.ts';
import { callThrough, insistThrough } from '../fixtures/machines/cluster-api.ts';
import { ClusterChecker } from '../fixtures/machines/cluster-state.ts';
import { Cluster } from '../fixtures/machines/cluster.ts';
import {
  OPERATIONS,
  OPERATION_STEPS,
  Operations,
  STEP_COUNT,
  type Operation,
  type OperationName,
} from '../fixtures/machines/fault-operations.ts';
import { FAULTS, findOwner, type FaultName } from '../fixtures/machines/machine-faults.ts';
import { logEnd } from '../fixtures/service/log-end.ts';
import { IS_LONG } from '../fixtures/test-size.ts';

const FINAL_ANSWER_MS = 60_000;
const ORDER_MS = 60_000;

interface Begun {
  name: OperationName;
  operation: Operation;
  answer: Promise<Answer | undefined>;
}

describe('faults of several machines', { concurrency: false }, () => {
  const made = new AsyncDisposableStack();
  let holds: Holds;
  let cluster: Cluster;
  let checker: ClusterChecker;
  let operations: Operations;

  before(async () => {
    holds = made.use(new Holds());
    const env = { COPPICE_FAULT_DIR: holds.directory };
    cluster = made.use(await Cluster.start({ runners: 3, hasNetwork: true, env }));
    checker = made.use(new ClusterChecker(cluster));
    operations = new Operations(cluster.controls);
  });
  after(async () => {
    holds?.releaseAll();
    await made.disposeAsync();
  });

  /** Begins all operations, each held at its step, and then the fault. Resolves when it is repaired and all is answered. */
  const strike = async (fault: FaultName, column: number): Promise<Begun[]> => {
    const t0 = performance.now();
    const [owner, other] = await findOwner(cluster, checker.db);
    const prepared = [];
    for (const name of OPERATIONS) prepared.push({ name, operation: await operations.begin(name) });
    console.log('prepared', Math.round(performance.now() - t0));
    using held = new DisposableStack();
    const begun: Begun[] = [];
    for (const [index, { name, operation }] of prepared.entries()) {
      const step = OPERATION_STEPS[name][column];
      assert.ok(step !== undefined);
      const hold = held.use(holds.hold(step));
      // Through both: some requests are forwarded.
      const answer = callThrough(index % 2 === 0 ? owner : other, operation.request);
      begun.push({ name, operation, answer });
      // Some steps come after the answer.
      const refused = answer.then((early) => {
        if (early !== undefined && early.status < 400) return hold.reached();
        throw new Error(`${name} did not reach ${step}: ${early?.text}`);
      });
      await Promise.race([hold.reached(), refused]);
      console.log('held', name, step, Math.round(performance.now() - t0));
    }
    const answered = Promise.all(begun.map(({ answer }) => answer));
    await FAULTS[fault]({ cluster, db: checker.db, owner, other, release: () => held.dispose(), answered });
    console.log('repaired', Math.round(performance.now() - t0));
    await answered;
    console.log(
      'answered',
      Math.round(performance.now() - t0),
      (
        await Promise.all(
          begun.map(async ({ name, answer }) => {
            const a = await answer;
            return `${name} ${a?.status} ${a !== undefined && a.status >= 400 ? a.text.slice(0, 150) : ''}`;
          }),
        )
      ).join('; '),
    );
    return begun;
  };

  const describeLogs = (): string =>
    [...cluster.controls, ...cluster.runners].map(({ name, log }) => `${name}: ${logEnd(log)}`).join('\n');

  for (const [row, fault] of (Object.keys(FAULTS) as FaultName[]).entries())
    for (let column = 0; column < STEP_COUNT; column += 1) {
      if (!IS_LONG && column !== row % STEP_COUNT) continue;
      if (process.env['ROWS'] !== undefined && !process.env['ROWS'].split(',').includes(`${row}`)) continue;
      const steps = OPERATIONS.map((name) => `${name} at ${OPERATION_STEPS[name][column]}`);
      it(`${fault}, during ${steps.join(', ')}`, async () => {
        const begun = await strike(fault, column);
        const wrong: string[] = [];
        for (const { name, operation } of begun)
          try {
            const t1 = performance.now();
            await operation.verify(await insistThrough(cluster.controls, operation.request, FINAL_ANSWER_MS));
            console.log('verified', name, Math.round(performance.now() - t1));
          } catch (error) {
            wrong.push(`${name}: ${String(error)}`);
          }
        assert.deepEqual(wrong, [], `${wrong.join('\n')}\n${describeLogs()}`);
        await operations.assertSame();
        const t2 = performance.now();
        await checker.assertInOrder(ORDER_MS);
        console.log('in order', Math.round(performance.now() - t2));
      });
    }

  it('nothing is left when the last sandbox is destroyed', async () => {
    await operations.destroyAll();
    const { runners } = await checker.assertInOrder(ORDER_MS, { isFinal: true });
    assert.deepEqual(
      runners.map(({ vms, captures }) => [...vms, ...captures]),
      [[], [], []],
    );
  });
});
