/** Somebody dies with SIGKILL at each named step: nothing is lost, nothing is left, and a caller who asks again is served. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { RECORD_STEPS } from '../packages/server/src/control/sandbox/steps.ts';
import { STEPS } from '../packages/server/src/runner/driver/steps.ts';
import { Api, type Answer } from './fixtures/api.ts';
import { CAPTURE_CASES, LAYER_STEPS } from './fixtures/capture-cases.ts';
import {
  ADOPT_STEPS,
  CREATE_CASES,
  DESTROY_CASES,
  EGRESS_STEPS,
  type FaultCase,
} from './fixtures/fault-cases.ts';
import { Holds } from './fixtures/holds.ts';
import { assertConsistent } from './fixtures/inventory.ts';
import { logEnd } from './fixtures/log-end.ts';
import { Service } from './fixtures/service.ts';
import { kill } from './fixtures/victims.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };
const SETTLE_TIMEOUT_MS = 40_000;
/** What a caller may be told by a service of which a part has just died: all of it worth another try. */
const PASSING = new Set([502, 503]);

interface ListedRun {
  id: string;
  status_reason: string | null;
}

describe('faults', { concurrency: false }, () => {
  const holds = new Holds();
  let service: Service;
  let api: Api;
  /** A sandbox that has no part in any of it. */
  let bystander = '';
  let spared: number[] = [];

  before(async () => {
    service = await Service.start({ instance: 8, env: { COPPICE_FAULT_DIR: holds.directory } });
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

  const attempt = (work: Promise<Answer>): Promise<Answer | undefined> => work.catch(() => undefined);

  /** As a client that does not give up; a broken connection is worth another try as well. */
  const insist = async (call: () => Promise<Answer>): Promise<Answer> => {
    let answer: Answer | undefined;
    await service.waitFor('an answer that lasts', SETTLE_TIMEOUT_MS, async () => {
      answer = await attempt(call());
      return answer !== undefined && !PASSING.has(answer.status);
    });
    return answer!;
  };

  /** Does `work` up to the step, kills there, lets it go on, and answers what its caller was told. */
  const dieAt = async (
    { step, victim }: FaultCase,
    work: () => Promise<Answer>,
  ): Promise<Answer | undefined> => {
    using hold = holds.hold(step);
    const first = attempt(work());
    await hold.reached();
    await kill(victim, service, spared);
    hold.release();
    return first;
  };

  const listOf = async (label: string, ...statuses: string[]): Promise<ListedRun[]> => {
    const query = new URLSearchParams({ label: `case:${label}` });
    for (const status of statuses) query.append('status', status);
    return (await api.call('GET', `/v1/runs?${query.toString()}`)).body as unknown as ListedRun[];
  };

  for (const fault of CREATE_CASES) {
    it(`a create at ${fault.step}, kill -9 of ${fault.victim}: running or cleanly gone`, async () => {
      const label = `${fault.step}-${fault.victim}`;
      const headers = { 'idempotency-key': randomUUID() };
      const create = () =>
        api.call('POST', '/v1/runs', { body: { ...IMAGE, labels: { case: label } }, headers });
      const first = await dieAt(fault, create);
      const isTold = first === undefined || first.status === 201 || PASSING.has(first.status);
      assert.ok(isTold, `${first?.text}\n${logEnd(service.output)}`);
      const answer = await insist(create);
      assert.equal(answer.status, 201, answer.text);
      const id = String(answer.body['id']);
      const lostAfterwards = fault.victim === 'qemu' && first?.status === 201;
      if (!lostAfterwards) assert.equal((await api.exec(id, 'echo here')).stdout, 'here\n');
      await assertConsistent(api);
      const alive = await listOf(label, 'creating', 'running');
      assert.deepEqual(
        alive.map((record) => record.id),
        lostAfterwards ? [] : [id],
      );
      for (const gone of await listOf(label, 'failed', 'destroyed')) assert.ok(gone.status_reason, gone.id);
      if (!lostAfterwards) assert.equal((await api.destroy(id)).status, 200);
    });
  }

  for (const fault of DESTROY_CASES) {
    it(`a destroy at ${fault.step}, kill -9 of ${fault.victim}: the sandbox is gone for good`, async () => {
      const { id } = await api.create(IMAGE);
      const first = await dieAt(fault, () => api.destroy(id));
      const isTold = first === undefined || first.status === 200 || PASSING.has(first.status);
      assert.ok(isTold, `${first?.text}\n${logEnd(service.output)}`);
      const answer = await insist(() => api.destroy(id));
      assert.ok([200, 409].includes(answer.status), answer.text);
      const record = await api.get(id);
      assert.ok(['destroyed', 'failed'].includes(String(record['status'])), JSON.stringify(record));
      assert.ok(record['status_reason']);
      await assertConsistent(api);
    });
  }

  for (const step of ADOPT_STEPS) {
    it(`the runner killed again at ${step}: the next one adopts`, async () => {
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
    it(`a client that goes away while its create is at ${step} leaves a sandbox that runs`, async () => {
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

  it('a guest whose PID 1 dies is failed within seconds', async () => {
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

  it('the sandbox that had no part in it has noticed nothing', async () => {
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

  it('no step is left out', () => {
    const cases = [...CREATE_CASES, ...DESTROY_CASES, ...CAPTURE_CASES];
    const tried = new Set<string>(cases.map(({ step }) => step));
    for (const step of [...ADOPT_STEPS, ...EGRESS_STEPS, ...LAYER_STEPS]) tried.add(step);
    const named = [...Object.keys(STEPS), ...Object.keys(RECORD_STEPS)];
    assert.deepEqual(
      named.filter((step) => !tried.has(step)),
      [],
    );
  });
});
