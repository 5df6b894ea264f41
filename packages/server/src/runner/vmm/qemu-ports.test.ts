import assert from 'node:assert/strict';
import { test } from 'node:test';
import { drainPorts, findPortsDevice } from './qemu-ports.ts';
import { QmpError, type QmpClient } from './qmp-client.ts';

const DEVICE = '/machine/peripheral-anon/device[2]';

/** A monitor that answers each question with the next of its answers, and then with the last. */
function monitor(...answers: unknown[]): { qmp: QmpClient; asked: string[] } {
  const asked: string[] = [];
  const execute = (command: string, parameters: object = {}): Promise<unknown> => {
    asked.push(`${command} ${JSON.stringify(parameters)}`);
    return Promise.resolve(answers.length > 1 ? answers.shift() : answers[0]);
  };
  return { qmp: { execute } as unknown as QmpClient, asked };
}

const inUse = (inuse: number): object => ({ inuse, 'used-idx': 4 });

test('the device of the ports is found among the others', async () => {
  const { qmp } = monitor([
    { name: 'virtio-blk', path: '/a' },
    { name: 'virtio-serial', path: DEVICE },
  ]);
  assert.equal(await findPortsDevice(qmp), DEVICE);
  await assert.rejects(findPortsDevice(monitor([]).qmp), QmpError);
  await assert.rejects(findPortsDevice(monitor(null).qmp), QmpError);
});

test('a buffer that is being handed over on either port is waited for', async () => {
  const { qmp, asked } = monitor(inUse(0), inUse(1), inUse(1), inUse(0), inUse(0));
  await drainPorts(qmp, DEVICE);
  assert.equal(asked.length, 6);
  assert.deepEqual(
    asked.slice(0, 2),
    [5, 7].map((queue) => `x-query-virtio-queue-status ${JSON.stringify({ path: DEVICE, queue })}`),
  );
});

test('a port that nobody reads is given up, with advice', async () => {
  const { qmp } = monitor(inUse(1));
  await assert.rejects(drainPorts(qmp, DEVICE, 10), { code: 'unavailable', message: /try again/u });
});
