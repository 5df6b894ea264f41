/** How many statements an operation costs: docs/scale.md. One more is a cost of every request, and should be one on purpose. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { countStatements } from '../testing/count-statements.ts';

const OPERATIONS = 20;
const NEVER_MS = 3_600_000;
/** Far longer than a round takes. */
const REPEAT_MS = 2000;

let harness: ControlHarness;
const ids: string[] = [];
before(async () => {
  harness = await startHarness({ reconcileIntervalMs: NEVER_MS });
  await harness.create();
});
after(() => harness[Symbol.asyncDispose]());

function assertAtMost(limit: number, statements: ReadonlyMap<string, number>): void {
  const sum = [...statements.values()].reduce((total, count) => total + count, 0);
  const list = [...statements].map(([text, count]) => `${count} × ${text}`).join('\n');
  assert.ok(sum <= limit, `${sum} statements instead of ${limit}:\n${list}`);
  assert.ok(sum > 0, 'nothing was counted');
}

function testAtMost(name: string, limit: number, work: (index: number) => Promise<unknown>): void {
  test(`${name} sends at most ${limit} statements to PostgreSQL`, async () =>
    assertAtMost(limit, await countStatements(OPERATIONS, work)));
}

testAtMost('create', 10, async () => ids.push((await harness.create()).id));
testAtMost('get', 1, (index) => harness.call('GET', `/v1/runs/${ids[index]}`));
testAtMost('list', 2, () => harness.call('GET', '/v1/runs'));
testAtMost('exec', 3, (index) =>
  harness.call('POST', `/v1/runs/${ids[index]}/exec`, { body: { command: 'x' } }),
);

test('a round of reconciliation sends as many statements for a hundred sandboxes as for one', async () => {
  const { runner } = harness;
  const countAll = (): number[] =>
    ['GET /roster', 'GET /captures', 'GET /metrics'].map(
      (wanted) => runner.requests.filter((request) => request === wanted).length,
    );
  /** A VM that is reported in another state changes the roster, and nothing else. */
  const begin = (): void => {
    const [vm] = runner.vms.values();
    assert.ok(vm);
    runner.vms.set(vm.id, { ...vm, state: vm.state === 'running' ? 'creating' : 'running' });
    runner.beat();
  };
  const round = async (): Promise<void> => {
    const before = countAll();
    let begunAt = -Infinity;
    await waitFor('a round', () => {
      // A round leaves out what the last one is still doing.
      if (performance.now() - begunAt > REPEAT_MS) {
        begin();
        begunAt = performance.now();
      }
      return countAll().every((count, index) => count > (before[index] ?? 0));
    });
  };
  await round();
  const few = await countStatements(OPERATIONS, round);
  assertAtMost(4, few);
  for (let made = 0; made < 100; made += 1) await harness.create();
  await round();
  assert.deepEqual(await countStatements(OPERATIONS, round), few);
});

testAtMost('destroy', 8, (index) => harness.call('DELETE', `/v1/runs/${ids[index]}`));
