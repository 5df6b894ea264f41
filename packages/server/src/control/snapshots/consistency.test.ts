/**
 * After any concurrent requests and any faults, the records and the state of the runner agree in the end, and nothing
 * is left over.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, type SandboxRecord, type SnapshotRecord } from '@coppice/contract';
import fc from 'fast-check';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

/** Longer than a control that is stopped waits for an answer. */
const UNANSWERED_MS = 300;

const ACTIONS = [
  'exec',
  'fork',
  'snapshot',
  'hibernate',
  'resume',
  'rollback',
  'restore',
  'destroy',
  'delete',
] as const;
/** Statuses that a caller may get. Any other status is a fault of the service. */
const EXPECTED = new Set([200, 201, 204, 207, 404, 409, 429, 502, 503, 504]);
const MISHAPS = ['none', 'none', 'none', 'refused', 'unheard', 'restart runner', 'restart control'] as const;
type Mishap = (typeof MISHAPS)[number];

const step = fc.record({
  actions: fc.array(fc.record({ action: fc.constantFrom(...ACTIONS), pick: fc.nat() }), {
    minLength: 1,
    maxLength: 4,
  }),
  mishap: fc.constantFrom(...MISHAPS),
});
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

class World {
  readonly harness: ControlHarness;
  readonly key: string;

  constructor(harness: ControlHarness, key: string) {
    this.harness = harness;
    this.key = key;
  }

  call(method: string, path: string, body?: object) {
    const { harness, key: apiKey } = this;
    return harness.call(method, path, { apiKey, ...(body === undefined ? {} : { body }) });
  }

  async listRecords(): Promise<SandboxRecord[]> {
    const statuses = ['creating', 'running', 'hibernated', 'destroyed', 'failed'];
    const query = statuses.map((status) => `status=${status}`).join('&');
    return (await this.call('GET', `/v1/runs?limit=500&${query}`)).body;
  }

  async listSnapshots(): Promise<SnapshotRecord[]> {
    return (await this.call('GET', '/v1/snapshots?limit=500')).body;
  }

  async create(): Promise<void> {
    const { status } = await this.call('POST', '/v1/runs', { image: 'node:22-slim', timeout: 0 });
    assert.equal(status, 201);
  }

  async act({ action, pick }: Step['actions'][number]): Promise<void> {
    const records = await this.listRecords();
    const alive = records.filter(({ status }) => status === 'running' || status === 'hibernated');
    const snapshots = await this.listSnapshots();
    const id = alive[pick % Math.max(1, alive.length)]?.id ?? `run${'0'.repeat(20)}`;
    const snapshot = snapshots[pick % Math.max(1, snapshots.length)]?.id ?? `snap${'0'.repeat(20)}`;
    const calls: Record<(typeof ACTIONS)[number], () => Promise<{ status: number; body: unknown }>> = {
      exec: () => this.call('POST', `/v1/runs/${id}/exec`, { command: 'true' }).catch(takeCut),
      fork: () => this.call('POST', `/v1/runs/${id}/fork`, { count: 2 }),
      snapshot: () => this.call('POST', `/v1/runs/${id}/snapshot`),
      hibernate: () => this.call('POST', `/v1/runs/${id}/hibernate`),
      resume: () => this.call('POST', `/v1/runs/${id}/resume`),
      rollback: () => this.call('POST', `/v1/runs/${id}/rollback`, { snapshot_id: snapshot }),
      restore: () => this.call('POST', '/v1/runs/restore', { snapshot_id: snapshot }),
      destroy: () => this.call('DELETE', `/v1/runs/${id}`),
      delete: () => this.call('DELETE', `/v1/snapshots/${snapshot}`),
    };
    const { status, body } = await calls[action]();
    assert.ok(EXPECTED.has(status), `${action}: ${status} ${JSON.stringify(body)}`);
  }

  /** Lists VMs, hibernations and snapshots, sorted: first those of the records, then those of the runner. */
  async compare(): Promise<[recorded: string[], real: string[]]> {
    const records = await this.listRecords();
    const { vms, captures } = this.harness.runner;
    const named = (status: string, prefix: string) =>
      records.filter((record) => record.status === status).map(({ id }) => prefix + id);
    const snapshots = (await this.listSnapshots()).map(({ id }) => id);
    const saved = [...captures.saved.values()];
    return [
      [
        ...named('creating', 'creating '),
        ...named('running', 'VM '),
        ...named('hibernated', 'saved '),
        ...snapshots,
      ].toSorted(),
      [
        ...[...vms.keys()].map((id) => `VM ${id}`),
        ...saved.map(({ kind, vm_id, id }) => (kind === 'hibernation' ? `saved ${vm_id}` : id)),
      ].toSorted(),
    ];
  }
}

/** Checks that the rollbacks in the audit logs are those that the runner has done, by id and snapshot. */
async function compareRollbacks({ harness, key: apiKey }: World, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    const log = await (await harness.fetch('GET', `/v1/runs/${id}/audit`, { apiKey })).text();
    const entries = log.split('\n').filter((line) => line.includes('"sandbox.rolled_back"'));
    const told = entries.map((line) => (JSON.parse(line) as { data: Record<string, unknown> }).data);
    const done = harness.runner.captures.rollbacks.get(id) ?? [];
    assert.deepEqual(
      told,
      done.map(({ rollback_id, capture_id }) => ({ rollback_id, snapshot_id: capture_id })),
    );
  }
}

/** Accepts an answer that is cut off: the status line of a command is sent at its start, before the runner is gone. */
function takeCut(error: unknown): { status: number; body: unknown } {
  if (error instanceof TypeError && error.message === 'terminated') return { status: 200, body: undefined };
  throw error;
}

/** Prepares a mishap. For `restart control`, resolves when an operation is done but not answered yet. */
function arm({ runner }: ControlHarness, mishap: Mishap): Promise<void> {
  const { captures } = runner;
  const reached = Promise.withResolvers<void>();
  const fail = (message: string) => (): void => {
    captures.reset();
    throw new AppError(message === 'refused' ? 'capacity' : 'unavailable', message);
  };
  if (mishap === 'refused') {
    captures.onFork = captures.onSnapshot = captures.onHibernate = fail(mishap);
    captures.onRestore = captures.onRollback = captures.onRemove = fail(mishap);
  }
  if (mishap === 'unheard') captures.beforeAnswer = fail(mishap);
  if (mishap === 'restart runner')
    captures.beforeAnswer = async () => {
      captures.reset();
      await runner.stop();
      await runner.start();
    };
  if (mishap === 'restart control')
    captures.beforeAnswer = async () => {
      reached.resolve();
      await delay(UNANSWERED_MS);
    };
  return reached.promise;
}

test('after any concurrent requests and mishaps, the records and the runner agree', async () => {
  const limits = { captureGraceMs: 100, shutdownDeadlineMs: 50, runnerOutageDeadlineMs: 2_000 };
  await using harness = await startHarness(limits);
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 8 }), async (steps) => {
      harness.runner.vms.clear();
      harness.runner.captures.saved.clear();
      const world = new World(harness, await harness.addOrganization());
      await world.create();
      await world.create();
      for (const { actions, mishap } of steps) {
        const reached = arm(harness, mishap);
        const acting = Promise.allSettled(actions.map((action) => world.act(action)));
        if (mishap === 'restart control') {
          await Promise.race([reached, acting]);
          await harness.stopControl();
          await harness.startControl();
        }
        const failed = (await acting).find((one) => one.status === 'rejected');
        if (failed !== undefined && mishap !== 'restart control') throw failed.reason;
        harness.runner.captures.reset();
      }
      await waitFor('the records and the runner to agree', async () => {
        const [recorded, real] = await world.compare();
        const isSettled = (await world.listRecords()).every(({ operation }) => operation === null);
        return isSettled && JSON.stringify(recorded) === JSON.stringify(real);
      }).catch(async () => assert.deepEqual(...(await world.compare())));
      const records = await world.listRecords();
      await compareRollbacks(
        world,
        records.map(({ id }) => id),
      );
      const lost = records.filter((record) => record.status_reason === 'vm_lost');
      assert.deepEqual(lost, [], 'no VM ended by itself');
    }),
    { numRuns: 12 },
  );
});
