import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findPortsDevice, readHandedOver } from './qemu-ports.ts';
import { QmpError, type QmpClient } from './qmp-client.ts';

const DEVICE = '/machine/peripheral-anon/device[2]';

function monitor(answer: (command: string, parameters: Record<string, unknown>) => unknown): QmpClient {
  const execute = (command: string, parameters: Record<string, unknown> = {}): Promise<unknown> =>
    Promise.resolve(answer(command, parameters));
  return { execute } as unknown as QmpClient;
}

test('the device of the ports is found among other devices', async () => {
  const listed = [
    { name: 'virtio-blk', path: '/machine/peripheral-anon/device[0]' },
    { name: 'virtio-serial', path: DEVICE },
  ];
  assert.equal(await findPortsDevice(monitor(() => listed)), DEVICE);
  for (const nonsense of [[], null, 'text', [{ name: 'virtio-serial' }]])
    await assert.rejects(findPortsDevice(monitor(() => nonsense)), QmpError);
});

test('only a buffer handed over on one of the ports changes the value', async () => {
  const used: Record<number, number> = { 5: 65_535, 7: 12 };
  const qmp = monitor((_command, { path, queue }) => {
    assert.equal(path, DEVICE);
    return { 'used-idx': used[Number(queue)], 'last-avail-idx': Math.random(), inuse: 1 };
  });
  const before = await readHandedOver(qmp, DEVICE);
  assert.equal(await readHandedOver(qmp, DEVICE), before);
  used[5] = 0;
  const between = await readHandedOver(qmp, DEVICE);
  assert.notEqual(between, before);
  used[7] = 13;
  assert.notEqual(await readHandedOver(qmp, DEVICE), between);
  await assert.rejects(
    readHandedOver(
      monitor(() => ({})),
      DEVICE,
    ),
    QmpError,
  );
});
