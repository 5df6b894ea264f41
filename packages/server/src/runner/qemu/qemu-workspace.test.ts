import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VmmError } from '../vm/vmm.ts';
import { QemuWorkspace } from './qemu-workspace.ts';
import { QmpError, type QmpClient } from './qmp-client.ts';

interface Node {
  file?: string;
  backing?: string | null;
}

/** QEMU's nodes, and the operations on them that it refuses. Fails or loses the answer of the n-th change on request. */
class Monitor {
  readonly nodes = new Map<string, Node>([['workspace-empty', {}]]);
  top = 'workspace-empty';
  sizeBytes = 0;
  readonly changes: string[] = [];
  failAt: { change: number; isDone: boolean } | undefined;

  readonly client = {
    execute: async (command: string, parameters: Record<string, unknown> = {}) =>
      this.#answer(command, parameters),
  } as unknown as QmpClient;

  #answer(command: string, parameters: Record<string, unknown>): unknown {
    if (command === 'query-named-block-nodes')
      return [...this.nodes.keys()].map((name) => ({ 'node-name': name }));
    if (command === 'query-block')
      return [
        { qdev: '/machine/peripheral/workspace-disk/virtio-backend', inserted: { 'node-name': this.top } },
      ];
    const { failAt } = this;
    const isLost = failAt !== undefined && failAt.change === this.changes.length;
    if (isLost) this.failAt = undefined;
    if (!isLost || failAt.isDone) this.#change(command, parameters);
    this.changes.push(command);
    if (isLost) throw new QmpError(command, 'lost');
    return {};
  }

  #change(command: string, parameters: Record<string, unknown>): void {
    const refuse = (why: string): never => {
      throw new QmpError(command, why);
    };
    const text = (name: string): string => String(parameters[name]);
    if (command === 'blockdev-add') {
      const { file, backing } = parameters as Node;
      if (this.nodes.has(text('node-name'))) refuse('duplicate');
      this.nodes.set(text('node-name'), { ...(file !== undefined && { file }), ...(backing && { backing }) });
    } else if (command === 'blockdev-del') {
      const name = text('node-name');
      if (!this.nodes.has(name)) refuse('not found');
      const users = [...this.nodes.values()].flatMap(({ file, backing }) => [file, backing]);
      if (users.includes(name) || this.top === name) refuse('in use');
      this.nodes.delete(name);
    } else if (command === 'blockdev-snapshot') {
      const overlay = this.nodes.get(text('overlay')) ?? refuse('not found');
      if (overlay.backing !== undefined) refuse('has a backing');
      overlay.backing = text('node');
      this.top = text('overlay');
    } else if (command === 'blockdev-reopen') {
      const [options] = parameters['options'] as [Node & { 'node-name': string }];
      if (!this.nodes.has(String(options.backing))) refuse('no backing');
      const { file, backing } = options;
      this.nodes.set(options['node-name'], {
        ...(file !== undefined && { file }),
        ...(backing && { backing }),
      });
    } else if (command === 'block_resize') this.sizeBytes = Number(parameters['size']);
  }
}

function open(monitor = new Monitor()) {
  const limits: number[] = [];
  const workspace = new QemuWorkspace({
    qmp: monitor.client,
    directories: { overlayDirectory: '/workspace', serverDirectory: '/blocks' },
    allowFileSize: async (sizeBytes) => void limits.push(sizeBytes),
  });
  return { monitor, workspace, limits };
}

const version = (number: number) => ({ number, exportName: `secret-${number}` });
const SOURCE = { version: version(1), overlay: 0, sizeBytes: 4096 };

test('a disk is attached to a VM without one, and its files may have that size', async () => {
  const { monitor, workspace, limits } = open();
  assert.deepEqual(await workspace.list(), { overlays: [], versions: [], top: undefined });
  await workspace.attach(SOURCE);
  assert.deepEqual(await workspace.list(), { overlays: [0], versions: [1], top: 0 });
  assert.equal(monitor.nodes.get('workspace-0')?.backing, 'version-1');
  assert.ok(!monitor.nodes.has('workspace-empty'));
  assert.deepEqual([monitor.sizeBytes, limits], [4096, [4096]]);
  await assert.rejects(workspace.attach({ ...SOURCE, overlay: 1 }), VmmError);
});

test('overlays are put on top, moved to newer versions and closed, from the lowest one up', async () => {
  const { monitor, workspace } = open();
  await workspace.attach(SOURCE);
  for (const overlay of [1, 2]) {
    await workspace.open(overlay);
    await workspace.push(overlay);
  }
  await workspace.rebase(1, version(2));
  await workspace.closeOverlay(0);
  await workspace.closeVersion(1);
  assert.deepEqual(await workspace.list(), { overlays: [1, 2], versions: [2], top: 2 });
  assert.equal(monitor.nodes.get('workspace-2')?.backing, 'workspace-1');
  await workspace.grow(8192);
  assert.equal(monitor.sizeBytes, 8192);
});

test('an overlay or version that is part of the disk cannot be closed', async () => {
  const { workspace } = open();
  await workspace.attach(SOURCE);
  await assert.rejects(workspace.closeOverlay(0), QmpError);
  await assert.rejects(workspace.closeVersion(1), QmpError);
  await workspace.closeOverlay(7);
  await workspace.closeVersion(7);
});

/** A whole life of a disk with each operation repeated until it succeeds. */
async function live(workspace: QemuWorkspace): Promise<void> {
  const operations = [
    () => workspace.attach(SOURCE),
    () => workspace.open(1),
    () => workspace.push(1),
    () => workspace.rebase(1, version(2)),
    () => workspace.closeOverlay(0),
    () => workspace.closeVersion(1),
    () => workspace.grow(8192),
  ];
  for (const operation of operations) await operation().catch(operation);
}

test('an operation that failed at any command, before or after QEMU ran it, is completed by a repeated one', async () => {
  const { monitor, workspace } = open();
  await live(workspace);
  const commands = monitor.changes.length;
  assert.ok(commands >= 14, String(commands));
  for (let change = 0; change < commands; change += 1)
    for (const isDone of [false, true]) {
      const trial = open();
      trial.monitor.failAt = { change, isDone };
      await live(trial.workspace);
      const what = `${change} ${isDone}`;
      assert.deepEqual(await trial.workspace.list(), { overlays: [1], versions: [2], top: 1 }, what);
      assert.deepEqual(trial.monitor.nodes, monitor.nodes, what);
      assert.equal(trial.monitor.sizeBytes, 8192, what);
    }
});

test('a VM without the device, of an earlier version, gets no disk', async () => {
  const { monitor, workspace } = open();
  monitor.top = 'disk-0';
  monitor.nodes.delete('workspace-empty');
  assert.equal((await workspace.list()).top, undefined);
  await assert.rejects(workspace.grow(1), VmmError);
});
