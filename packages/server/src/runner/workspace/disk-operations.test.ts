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
const parts = {
  server,
  workspaces,
  directory,
  name: 'new',
  mke2fs: site.mke2fs,
  disk: new DiskGuard({ directory: site.directory, reserveMiB: 1 }),
  sessionOf: () => Promise.reject(new Error('there is no agent')),
};
const disks = new DiskOperations(parts);
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

/** An image of a file system, with other bytes behind it. */
async function makeImage(): Promise<Buffer> {
  const key = site.newDisk();
  await disks.create(key, DISK_BYTES);
  const image = await buffer(disks.export(key, { format: 'raw' }));
  randomBytes(8 * MIB).copy(image, 8 * MIB);
  return image;
}

test('an image is exported as it was imported, in both formats', async () => {
  const image = await makeImage();
  const key = site.newDisk();
  const { size_bytes } = await disks.import(key, Readable.from([image]), {
    format: 'raw',
    maxBytes: 2 ** 40,
  });
  assert.equal(size_bytes, DISK_BYTES);
  assert.ok((await buffer(disks.export(key, { format: 'raw' }))).equals(image));
  const qcow2 = await buffer(disks.export(key, { format: 'qcow2' }));
  const copy = site.newDisk();
  await disks.import(copy, Readable.from([qcow2]), { format: 'qcow2', maxBytes: DISK_BYTES });
  assert.ok((await buffer(disks.export(copy, { format: 'raw' }))).equals(image));
  assert.deepEqual(readdirSync(directory), []);
});

test('an image that is too large, cut off or not of its format is refused, and leaves nothing', async () => {
  const image = await makeImage();
  const from = site.newDisk();
  await disks.import(from, Readable.from([image]), { format: 'raw', maxBytes: DISK_BYTES });
  const qcow2 = await buffer(disks.export(from, { format: 'qcow2' }));
  const rest = Buffer.alloc(1);
  const endless = async function* (): AsyncGenerator<Buffer> {
    for (;;) yield image;
  };
  const refusals = [
    ['raw', [image, rest], DISK_BYTES, 'payload_too_large', /^body: .* more than \d+ bytes/u],
    ['raw', [image], DISK_BYTES - 4096, 'payload_too_large', /^body: /u],
    ['raw', endless(), DISK_BYTES, 'payload_too_large', /^body: .* more than \d+ bytes/u],
    ['qcow2', endless(), DISK_BYTES, 'payload_too_large', /^body: .* more than \d+ bytes/u],
    ['qcow2', [qcow2], DISK_BYTES - 4096, 'payload_too_large', /^body: .* at most \d+ are allowed/u],
    ['raw', [image.subarray(0, -4096)], DISK_BYTES, 'invalid_request', /^body: .* send all of it/u],
    ['raw', [randomBytes(DISK_BYTES)], DISK_BYTES, 'invalid_request', /^body: .* no ext4 .* mkfs\.ext4/u],
    ['raw', [], DISK_BYTES, 'invalid_request', /^body: .* empty/u],
    ['raw', [qcow2], DISK_BYTES, 'invalid_request', /^body: .* give its format/u],
    ['qcow2', [image], DISK_BYTES, 'invalid_request', /^body: .* not a qcow2 file/u],
    ['qcow2', [qcow2.subarray(0, 2 * MIB)], DISK_BYTES, 'invalid_request', /^body: /u],
  ] as const;
  for (const [format, content, maxBytes, code, message] of refusals) {
    const key = site.newDisk();
    const body = Readable.from(content, { objectMode: true });
    await assert.rejects(disks.import(key, body, { format, maxBytes }), { code, message }, String(message));
    await assert.rejects(disks.state(key), { code: 'not_found' });
  }
  assert.deepEqual(readdirSync(directory), []);
});

test('an image for which the host has no room is refused, and leaves nothing', async () => {
  const image = await makeImage();
  let freeMiB = 1000;
  const full = new DiskOperations({
    ...parts,
    disk: new DiskGuard({ directory: site.directory, reserveMiB: 800, freeMiB: () => freeMiB }),
  });
  const filling = async function* (): AsyncGenerator<Buffer> {
    for (;;) {
      yield image;
      freeMiB -= image.length / MIB;
    }
  };
  const how = { format: 'raw', maxBytes: 2 ** 40 } as const;
  const key = site.newDisk();
  await assert.rejects(full.import(key, filling(), how), { code: 'capacity', message: /^disk: .* delete/u });
  await assert.rejects(full.import(key, Readable.from([image]), how), { code: 'capacity' });
  await assert.rejects(full.state(key), { code: 'not_found' });
  assert.deepEqual(readdirSync(directory), []);
});

test('a disk that is removed during its import is not made afterwards', async () => {
  const image = await makeImage();
  const key = site.newDisk();
  const sent = Promise.withResolvers<void>();
  const content = async function* (): AsyncGenerator<Buffer> {
    yield image;
    await sent.promise;
  };
  const made = disks.import(key, content(), { format: 'raw', maxBytes: DISK_BYTES });
  const removed = disks.remove(key);
  sent.resolve();
  // Its state may be asked for after the removal.
  await Promise.allSettled([made]);
  await removed;
  await assert.rejects(disks.state(key), { code: 'not_found' });
});

test('an export that fails in the middle does not end as a complete one', async () => {
  const key = site.newDisk();
  await disks.import(key, Readable.from([await makeImage()]), { format: 'raw', maxBytes: DISK_BYTES });
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
