/** The runner reserves capacity for a create for exactly as long as the create is under way. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { pino } from 'pino';
import { RunnerClient } from '../placement/runner-client.ts';
import { RunnerConnection } from '../placement/runner-connection.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

const SHAPE = { vcpus: 1, mem_mib: 256, disk_mib: 64 };
const ID = 'run00000000000000000001';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

const released = (): Promise<void> => waitFor('no reservation to be held', () => harness.runner.holds === 0);

test('capacity is reserved until the VM exists, and released with the answer', async () => {
  let heldMeanwhile = 0;
  harness.runner.onCreate = () => void (heldMeanwhile = harness.runner.holds);
  await harness.create();
  assert.equal(heldMeanwhile, 1);
  await released();
});

test('a create that fails releases its reservation', async (t) => {
  t.after(() => (harness.runner.onCreate = () => undefined));
  harness.runner.onCreate = () => {
    throw new AppError('image_not_found', 'no such image');
  };
  const answer = await harness.call('POST', '/v1/runs', { body: { image: 'app:1' } });
  assert.equal(answer.status, 404);
  await released();
});

test('the reservations of a control that is gone are released', async () => {
  const connection = new RunnerConnection(
    { kind: 'socket', path: harness.runner.socketPath },
    pino({ level: 'silent' }),
  );
  await new RunnerClient(connection).admitVm(ID, SHAPE);
  assert.equal(harness.runner.holds, 1);
  connection[Symbol.dispose]();
  await released();
});
