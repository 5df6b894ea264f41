import assert from 'node:assert/strict';
import { test } from 'node:test';
import { QemuDisk } from './qemu-disk.ts';
import { QmpError, type QmpClient } from './qmp-client.ts';

/** A monitor whose VM has open overlays, of which those up to `top` form the disk. */
function monitor(open: number[], top: number, depth: number) {
  const calls: string[] = [];
  const execute = async (command: string, parameters: Record<string, unknown> = {}): Promise<unknown> => {
    if (command === 'query-named-block-nodes')
      return open.flatMap((number) => [
        { 'node-name': `disk-${number}` },
        { 'node-name': `disk-${number}-file` },
      ]);
    if (command === 'query-block')
      return [
        { qdev: '/machine/peripheral/image' },
        {
          qdev: '/machine/peripheral/scratch-disk/virtio-backend',
          inserted: { 'node-name': `disk-${top}`, backing_file_depth: depth },
        },
      ];
    calls.push([command, ...Object.values(parameters)].join(' '));
    return {};
  };
  return { calls, qmp: { execute } as unknown as QmpClient };
}

test('a new overlay is put on the one that was put on top before it', async () => {
  const { calls, qmp } = monitor([], 0, 1);
  const disk = new QemuDisk(qmp, '/disk', 3);
  await disk.push(4);
  await disk.push(5);
  await disk.grow(1024);
  assert.deepEqual(calls, [
    'blockdev-snapshot disk-3 disk-4',
    'blockdev-snapshot disk-4 disk-5',
    'block_resize disk-5 1024',
  ]);
});

test('the top of an adopted VM is read from QEMU', async () => {
  const { calls, qmp } = monitor([2, 5, 7, 9], 7, 2);
  const disk = new QemuDisk(qmp, '/disk', undefined);
  await disk.push(9);
  assert.deepEqual(calls, ['blockdev-snapshot disk-7 disk-9']);
  assert.deepEqual(await disk.listOverlays(), [5, 7], 'neither a prepared overlay nor a flattened one');
});

test('an overlay is opened by its path in the jail, without a backing', async () => {
  const nodes: Record<string, unknown>[] = [];
  const execute = async (_command: string, node: Record<string, unknown>): Promise<unknown> => {
    nodes.push(node);
    return {};
  };
  await new QemuDisk({ execute } as unknown as QmpClient, '/disk', 0).open(1);
  assert.deepEqual(
    nodes.map(({ driver, filename, backing }) => [driver, filename, backing]),
    [
      ['file', '/disk/1.qcow2', undefined],
      ['qcow2', undefined, null],
    ],
  );
});

test('a VM without a scratch disk has no overlays to list', async () => {
  const { qmp } = monitor([], 0, 0);
  await assert.rejects(new QemuDisk(qmp, undefined, undefined).listOverlays(), QmpError);
});
