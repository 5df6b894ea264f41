import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { DiskGuard } from '../capacity/disk-guard.ts';
import { DiskOperations } from './disk-operations.ts';
import { DISK_BYTES, DiskSite, until } from './testing/disk-site.ts';

const MIB = 1024 * 1024;
const MAX_DIRTY_BYTES = 2 * MIB;
const site = new DiskSite();
let around: (operation: string, isDone: boolean) => void | Promise<void> = () => undefined;
const server = site.openServer((operation, isDone) => around(operation, isDone));
const workspaces = site.open(server, { maxDirtyBytes: MAX_DIRTY_BYTES });
const directory = join(site.overlays, 'new');
const disks = new DiskOperations({
  server,
  workspaces,
  directory,
  name: 'new',
  mke2fs: site.mke2fs,
  disk: new DiskGuard({ directory: site.directory, reserveMiB: 1 }),
  sessionOf: () => Promise.reject(new Error('there is no agent')),
});
after(() => {
  workspaces[Symbol.dispose]();
  site[Symbol.dispose]();
});

const EXT4_MAGIC = [0x53, 0xef];

test('a create that control repeats while it runs makes one formatted disk', async () => {
  const key = site.newDisk();
  const states = await Promise.all([disks.create(key, DISK_BYTES), disks.create(key, DISK_BYTES)]);
  assert.deepEqual(states[0], states[1]);
  assert.deepEqual([...site.exported(server, key).subarray(1080, 1082)], EXT4_MAGIC);
  assert.equal((await disks.create(key, DISK_BYTES)).version, states[0].version);
  assert.deepEqual(readdirSync(directory), []);
});

test('an image is exported as it was imported, and one that is larger than the disk is refused', async () => {
  const key = site.newDisk();
  const image = Buffer.alloc(DISK_BYTES, 7);
  const how = { format: 'raw' as const, sizeBytes: DISK_BYTES };
  const tooLarge = Readable.from([image, Buffer.alloc(1)]);
  await assert.rejects(disks.import(key, tooLarge, how), { code: 'invalid_request' });
  await disks.import(key, Readable.from([image]), how);
  assert.ok((await buffer(disks.export(key, { format: 'raw' }))).equals(image));
  assert.deepEqual(readdirSync(directory), []);
});

test('an export that fails in the middle does not end as a complete one', async () => {
  const key = site.newDisk();
  const image = randomBytes(DISK_BYTES);
  await disks.import(key, Readable.from([image]), { format: 'raw', sizeBytes: DISK_BYTES });
  const blocks = join(site.directory, 'objects', 'blocks', key.organization);
  for (const name of readdirSync(blocks, { recursive: true, encoding: 'utf8' })) {
    const path = join(blocks, name);
    if (statSync(path).size > MIB) truncateSync(path, MIB);
  }
  await assert.rejects(buffer(disks.export(key, { format: 'raw' })), /not exported/u);
});

test('a snapshot stays while a sandbox is being rolled back to it', async () => {
  const asked = await site.makeDisk(server);
  const old = await site.attach(workspaces, asked);
  await old.write(0, MIB, 1);
  const name = `dsnap${'0'.repeat(20)}`;
  const kept = await disks.snapshot(asked, { snapshot: name, sync: false });
  const vm = await site.replace(workspaces, old, kept.version);
  await assert.rejects(disks.removeSnapshot(asked, kept.version), { code: 'unavailable' });
  vm.model.fill(1, 0, MIB);
  workspaces.replaced(vm.attachment);
  await disks.removeSnapshot(asked, kept.version);
  assert.ok((await vm.graph.read()).equals(vm.model));
  workspaces.leave(vm.unit);
  await until('the release', () => workspaces.attachments.length === 0);
  assert.ok(site.exported(server, asked).equals(vm.model));
});

test('a guest is held while too much waits for a store that hangs, and continues afterwards', async () => {
  const asked = await site.makeDisk(server);
  const vm = await site.attach(workspaces, asked);
  const hung = Promise.withResolvers<void>();
  around = async (operation, isDone) => {
    if (operation === 'drain' && !isDone) await hung.promise;
  };
  await vm.write(0, MIB, 1);
  (await vm.attachment.seal())[Symbol.dispose]();
  await vm.write(MIB, 4 * MIB, 2);
  await until('the hold', () => vm.orders.includes('hold'));
  assert.match((await disks.state(asked)).attachment?.waits_for ?? '', /more data waits/u);
  (await vm.attachment.seal())[Symbol.dispose]();
  around = () => undefined;
  hung.resolve();
  await until('the continuation', () => vm.orders.includes('go on'));
  assert.deepEqual(vm.orders, ['hold', 'go on']);
  workspaces.leave(vm.unit);
  await until('the release', () => workspaces.attachments.length === 0);
  assert.ok(site.exported(server, asked).equals(vm.model));
});

test('a host whose disk is full when a VM gets its disk gives the disk up', async () => {
  const asked = await site.makeDisk(server);
  const taken = await workspaces.take(asked, 'vm');
  const unit = site.newUnit();
  // The record cannot be written where a directory is in its place.
  mkdirSync(join(site.overlays, unit, 'disk.json'), { recursive: true });
  const attachment = workspaces.bind(taken, { unit, uid: process.getuid?.() ?? 0 });
  // The create fails, and the VM leaves the disk.
  await assert.rejects(attachment.kept);
  workspaces.leave(unit);
  await until('the release', () => workspaces.findOfUnit(unit) === undefined);
  await disks.remove(asked);
});
