/**
 * A process dies with SIGKILL at each named step: nothing is lost, nothing is left, and a repeated request is served.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { RECORD_STEPS } from '../../packages/server/src/control/sandbox/record/steps.ts';
import { STEPS } from '../../packages/server/src/runner/vm/steps.ts';
import { Api, type Answer } from '../fixtures/api/api.ts';
import { CAPTURE_CASES, LAYER_STEPS } from '../fixtures/captures/capture-cases.ts';
import { DISK_STEPS } from '../fixtures/disks/disk-crash.ts';
import { ADOPT_STEPS, EGRESS_STEPS, FAULT_CASES, type FaultCase } from '../fixtures/faults/fault-cases.ts';
import { Holds } from '../fixtures/faults/holds.ts';
import { assertConsistent } from '../fixtures/host/inventory.ts';
import { attempt, groupByKill, insist, isPassing } from '../fixtures/faults/kill-groups.ts';
import { logEnd } from '../fixtures/service/log-end.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';
import { kill } from '../fixtures/faults/victims.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };
const SETTLE_TIMEOUT_MS = 40_000;

interface ListedRun {
  id: string;
  status_reason: string | null;
}

interface Attempt {
  /** Sends the same request each time. */
  ask: () => Promise<Answer>;
  /**
   * Checks the state after the kill and removes it. `first` is the caller's first answer; undefined if the connection
   * broke.
   */
  verify: (first: Answer | undefined) => Promise<void>;
}

describe('faults', { concurrency: false }, () => {
  const holds = new Holds();
  let service: Service;
  let api: Api;
  /** A sandbox that no fault affects. */
  let bystander = '';
  let spared: number[] = [];

  before(async () => {
    service = await startPrepared({ instance: 8, env: { COPPICE_FAULT_DIR: holds.directory } });
    api = new Api(service);
    bystander = (await api.create(IMAGE)).id;
    spared = service.vmPids();
    await api.exec(bystander, 'echo kept > /workspace/file; (sleep 1000 & echo $! > /tmp/pid)');
  });
  after(async () => {
    holds.releaseAll();
    await service[Symbol.asyncDispose]();
    holds[Symbol.dispose]();
  });

  const listOf = async (label: string, ...statuses: string[]): Promise<ListedRun[]> => {
    const query = new URLSearchParams({ label: `case:${label}` });
    for (const status of statuses) query.append('status', status);
    return (await api.call('GET', `/v1/runs?${query.toString()}`)).body as unknown as ListedRun[];
  };

  const beginCreate = async ({ step, victim }: FaultCase): Promise<Attempt> => {
    const label = `${step}-${victim}`;
    const headers = { 'idempotency-key': randomUUID() };
    const body = { ...IMAGE, labels: { case: label } };
    const ask = (): Promise<Answer> => api.call('POST', '/v1/runs', { body, headers });
    const verify: Attempt['verify'] = async (first) => {
      assertTold(first, 201);
      const answer = await insist(service, SETTLE_TIMEOUT_MS, ask);
      assert.equal(answer.status, 201, answer.text);
      const id = String(answer.body['id']);
      const lostAfterwards = victim === 'qemu' && first?.status === 201;
      if (!lostAfterwards) assert.equal((await api.exec(id, 'echo here')).stdout, 'here\n');
      await assertConsistent(api);
      const alive = await listOf(label, 'creating', 'running');
      assert.deepEqual(
        alive.map((record) => record.id),
        lostAfterwards ? [] : [id],
      );
      for (const gone of await listOf(label, 'failed', 'destroyed')) assert.ok(gone.status_reason, gone.id);
      if (!lostAfterwards) assert.equal((await api.destroy(id)).status, 200);
    };
    return { ask, verify };
  };

  const beginDestroy = async (): Promise<Attempt> => {
    const { id } = await api.create(IMAGE);
    const ask = (): Promise<Answer> => api.destroy(id);
    const verify: Attempt['verify'] = async (first) => {
      assertTold(first, 200);
      const answer = await insist(service, SETTLE_TIMEOUT_MS, ask);
      assert.ok([200, 409].includes(answer.status), answer.text);
      const record = await api.get(id);
      assert.ok(['destroyed', 'failed'].includes(String(record['status'])), JSON.stringify(record));
      assert.ok(record['status_reason']);
      await assertConsistent(api);
    };
    return { ask, verify };
  };

  const assertTold = (first: Answer | undefined, done: number): void =>
    assert.ok(
      first === undefined || first.status === done || isPassing(first),
      `${first?.status} ${first?.text}\n${logEnd(service.output)}`,
    );

  const ENDS = { create: 'running or cleanly gone', destroy: 'the sandbox is gone for good' };
  for (const group of groupByKill(FAULT_CASES)) {
    describe(`kill -9 of ${group[0]?.victim}`, () => {
      const told = new Map<FaultCase, { attempt: Attempt; first: Answer | undefined }>();

      before(async () => {
        const attempts: [FaultCase, Attempt][] = [];
        for (const one of group)
          attempts.push([one, await (one.operation === 'create' ? beginCreate(one) : beginDestroy())]);
        using held = new DisposableStack();
        const asked: [FaultCase, Attempt, Promise<Answer | undefined>][] = [];
        for (const [one, begun] of attempts) {
          const hold = held.use(holds.hold(one.step));
          asked.push([one, begun, attempt(begun.ask())]);
          await hold.reached();
        }
        for (const { victim } of group.slice(0, 1)) await kill(victim, service, spared);
        held.dispose();
        for (const [one, begun, first] of asked) told.set(one, { attempt: begun, first: await first });
      });

      for (const one of group)
        it(`a ${one.operation} at ${one.step}: ${ENDS[one.operation]}`, async () => {
          const { attempt: begun, first } = told.get(one)!;
          await begun.verify(first);
        });
    });
  }

  for (const step of ADOPT_STEPS) {
    it(`the runner killed again at ${step}: the next one adopts the VMs`, async () => {
      using hold = holds.hold(step);
      process.kill(service.rolePid('runner'), 'SIGKILL');
      await hold.reached();
      process.kill(service.rolePid('runner'), 'SIGKILL');
      hold.release();
      await service.waitFor('/healthz', SETTLE_TIMEOUT_MS, async () => (await service.health()) === 200);
      await assertConsistent(api);
    });
  }

  for (const step of ['record.insert', 'create.launch', 'create.answer'] as const) {
    it(`a client that disconnects while its create is at ${step} leaves a running sandbox`, async () => {
      const abort = new AbortController();
      using hold = holds.hold(step);
      const labels = { case: `away-${step}` };
      const create = attempt(
        api.call('POST', '/v1/runs', { body: { ...IMAGE, labels }, signal: abort.signal }),
      );
      await hold.reached();
      abort.abort();
      assert.equal(await create, undefined);
      hold.release();
      let id = '';
      await service.waitFor('the sandbox to run', SETTLE_TIMEOUT_MS, async () => {
        const [running] = await listOf(labels.case, 'running');
        id = String(running?.id);
        return running !== undefined;
      });
      assert.equal((await api.exec(id, 'echo here')).stdout, 'here\n');
      await api.destroy(id);
      await assertConsistent(api);
    });
  }

  it('a sandbox whose PID 1 dies is failed within seconds', async () => {
    const { id } = await api.create(IMAGE);
    const overwriteAgent = [
      "line = next(l for l in open('/proc/1/maps') if 'r-xp' in l)",
      "start, end = (int(x, 16) for x in line.split()[0].split('-'))",
      "memory = open('/proc/1/mem', 'wb', 0)",
      'memory.seek(start)',
      'memory.write(bytes(end - start))',
    ].join('\n');
    const startedAt = performance.now();
    await attempt(
      api.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'python3 -', stdin: overwriteAgent } }),
    );
    await service.waitFor('the record to fail', 5000, async () => (await api.get(id))['status'] === 'failed');
    assert.ok(performance.now() - startedAt < 10_000);
    assert.equal((await api.get(id))['status_reason'], 'guest_panic');
    await assertConsistent(api);
  });

  it('the unaffected sandbox has noticed nothing', async () => {
    const { stdout } = await api.exec(
      bystander,
      'cat /workspace/file; kill -0 $(cat /tmp/pid) && echo alive',
    );
    assert.equal(stdout, 'kept\nalive\n');
    const { units } = await assertConsistent(api);
    assert.deepEqual(
      units.map(({ id }) => id),
      [bystander],
    );
  });

  it('every step is tested', () => {
    const cases = [...FAULT_CASES, ...CAPTURE_CASES];
    const tried = new Set<string>(cases.map(({ step }) => step));
    for (const step of [...ADOPT_STEPS, ...EGRESS_STEPS, ...LAYER_STEPS, ...DISK_STEPS]) tried.add(step);
    const named = [...Object.keys(STEPS), ...Object.keys(RECORD_STEPS)];
    assert.deepEqual(
      named.filter((step) => !tried.has(step)),
      [],
    );
  });
});
