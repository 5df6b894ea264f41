/** A planned stop of one of two controls that has the runner of another machine. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { waitFor, type ControlHarness } from '../../testing/control-harness.ts';
import { JoinedRunner } from '../../testing/controls/joined-runner.ts';
import { TwoControls } from '../../testing/controls/two-controls.ts';
import type { FakeCommand } from '../../testing/fakes/fake-runner.ts';

/** Less than the lease of a killed control. */
const HANDOVER_MS = 8_000;

let both: TwoControls;
let joined: JoinedRunner;
before(async () => {
  both = await TwoControls.start({ shutdownDeadlineMs: 20_000 });
  joined = await JoinedRunner.join(both.one);
});
after(async () => {
  await joined[Symbol.asyncDispose]();
  await both[Symbol.asyncDispose]();
});

const has = ({ logLines }: ControlHarness): boolean =>
  logLines.some((line) => line.includes('this control has the runner') && line.includes(joined.runner.id));

async function createThere(): Promise<string> {
  const refuse = (): never => {
    throw new AppError('capacity', 'no memory');
  };
  both.one.runner.onAdmission = both.other.runner.onAdmission = refuse;
  let id = '';
  await waitFor('a sandbox of the joined runner', async () => {
    const made = await both.one.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
    id = made.body.id;
    return made.status === 201;
  });
  return id;
}

test('its requests end, and those that come meanwhile are answered by the next owner', async () => {
  const id = await createThere();
  const [owner, next] = has(both.one) ? [both.one, both.other] : [both.other, both.one];
  const slow: FakeCommand[] = [];
  joined.runner.onExec = (command) => {
    if (command.head.command === 'slow') slow.push(command);
    else command.exit(0);
  };
  const exec = (harness: ControlHarness, command: string) =>
    harness.call('POST', `/v1/runs/${id}/exec`, { body: { command } });
  const running = [exec(owner, 'slow'), exec(next, 'slow')];
  await waitFor('the commands', () => slow.length === 2);
  const stopped = owner.stopControl();
  await waitFor('the stop', async () => (await owner.call('GET', '/healthz')).status === 503);
  const refused = await exec(owner, 'quick');
  assert.deepEqual([refused.status, refused.body.error.code], [503, 'unavailable']);
  assert.ok(refused.headers.get('retry-after'));
  let isAnswered = false;
  const meanwhile = exec(next, 'quick').finally(() => (isAnswered = true));
  // A body that was begun is not sent twice.
  for (const harness of [next, owner])
    for (const size of [10, 8 << 20]) {
      const upload = harness.call('POST', `/v1/runs/${id}/files/upload?path=/w/a`, {
        raw: Buffer.alloc(size),
      });
      assert.equal((await upload).status, 503);
    }
  assert.equal(isAnswered, false, 'the owner still has requests of its own');
  const releasedAt = performance.now();
  for (const command of slow) command.exit(7);
  for (const answer of await Promise.all(running))
    assert.deepEqual([answer.status, answer.body.exit_code], [200, 7]);
  assert.equal((await meanwhile).status, 200);
  assert.ok(performance.now() - releasedAt < HANDOVER_MS, 'the lease was given up');
  assert.ok(has(next));
  await stopped;
  assert.equal((await exec(next, 'quick')).status, 200);
});
