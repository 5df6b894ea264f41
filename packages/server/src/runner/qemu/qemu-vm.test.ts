import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { pino } from 'pino';
import { findIdentity, type ProcessIdentity } from '../host/host-process.ts';
import { VmGoneError } from '../vm/vmm.ts';
import { QemuVm } from './qemu-vm.ts';
import type { QmpClient } from './qmp-client.ts';

/** A VM whose data port is a server of the test, and whose monitor records its commands. */
async function openVm(t: TestContext, identity: ProcessIdentity = findIdentity(process.pid)!) {
  const socketDirectory = mkdtempSync(join(tmpdir(), 'coppice-qemu-'));
  t.after(() => rmSync(socketDirectory, { recursive: true }));
  const events: string[] = [];
  const connections: Socket[] = [];
  const server = createServer((socket) => {
    events.push('connection');
    connections.push(socket.on('error', () => undefined));
  }).listen(join(socketDirectory, 'data'));
  await once(server, 'listening');
  t.after(async () => {
    for (const socket of connections) socket.destroy();
    await once(server.close(), 'close');
  });
  const execute = async (command: string): Promise<unknown> => {
    // The server sees a connection a moment after the client.
    if (command === 'migrate-incoming' && connections.length === 0) await once(server, 'connection');
    events.push(command);
    return {};
  };
  const qmp = Object.assign(new EventEmitter(), { execute, close: () => undefined });
  const seen = { sockets: socketDirectory, overlays: undefined, workspace: undefined };
  const log = pino({ level: 'silent' });
  const parts = { identity, socketDirectory, seen, top: undefined, qmp: qmp as unknown as QmpClient, log };
  const vm = new QemuVm(parts);
  t.after(() => vm.detach());
  return { vm, events, connections };
}

test('the data port is read before the state is loaded, and the first session gets that connection', async (t) => {
  const { vm, events, connections } = await openVm(t);
  await vm.load('/state');
  assert.deepEqual(events, ['connection', 'migrate-incoming']);
  const first = await vm.connectAgent('data', 1000);
  assert.equal(connections.length, 1);
  first.destroy();
  (await vm.connectAgent('data', 1000)).destroy();
  while (connections.length < 2) await setImmediate();
});

test('a connection that was lost before the first session is replaced', async (t) => {
  const { vm, connections } = await openVm(t);
  await vm.load('/state');
  connections[0]?.destroy();
  await once(connections[0]!, 'close');
  await setImmediate();
  const socket = await vm.connectAgent('data', 1000);
  assert.equal(socket.destroyed, false);
  socket.destroy();
});

test('the agent of a VM that has ended cannot be reached', async (t) => {
  const { vm } = await openVm(t, { pid: process.pid, startTicks: 0 });
  await assert.rejects(vm.connectAgent('ctl', 1000), VmGoneError);
});
