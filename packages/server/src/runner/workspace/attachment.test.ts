import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { DISK_BYTES, DiskSite, until, type DiskVm } from './testing/disk-site.ts';
import { DiskManifest, Nothing } from './block-requests.ts';
import type { VmWorkspace } from '../../lib/protocol/disk-protocol.ts';
import { keepMoment, keepMomentAnew } from './disk-moments.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const site = new DiskSite();
/** A test replaces it to fail requests. */
let around: (operation: string, isDone: boolean) => void | Promise<void> = () => undefined;
const server = site.openServer((operation, isDone) => around(operation, isDone));
const workspaces = site.open(server);
after(() => {
  workspaces[Symbol.dispose]();
  site[Symbol.dispose]();
});

async function attachNew(): Promise<{ vm: DiskVm; asked: VmWorkspace }> {
  const asked = await site.makeDisk(server);
  return { vm: await site.attach(workspaces, asked), asked };
}

async function leave(vm: DiskVm, asked: VmWorkspace): Promise<void> {
  workspaces.leave(vm.unit);
  await until('the release', () => workspaces.findOfUnit(vm.unit) === undefined);
  assert.ok(!existsSync(join(site.overlays, vm.unit)));
  assert.ok(site.exported(server, asked).equals(vm.model), 'the disk has what the guest wrote');
}

async function seal(vm: DiskVm): Promise<void> {
  (await vm.attachment.seal())[Symbol.dispose]();
}

test('what a guest wrote is in the store after a flush, and the guest reads the same', async () => {
  const { vm, asked } = await attachNew();
  await vm.write(0, MIB, 1);
  await vm.write(5 * MIB, 4 * KIB, 2);
  await vm.attachment.flush();
  assert.ok(site.exported(server, asked).equals(vm.model));
  assert.ok((await vm.graph.read()).equals(vm.model));
  await vm.write(512 * KIB, MIB, 3);
  assert.ok((await vm.graph.read()).equals(vm.model));
  await leave(vm, asked);
});

test('a backlog of sealed overlays is drained in order', async () => {
  const { vm, asked } = await attachNew();
  around = (operation) => {
    if (operation === 'drain') throw new Error('the store is away');
  };
  for (let byte = 1; byte <= 5; byte += 1) {
    await vm.write(byte * 64 * KIB, MIB, byte);
    await seal(vm);
  }
  assert.equal(vm.attachment.sealedCount, 5);
  assert.ok((await vm.graph.read()).equals(vm.model));
  around = () => undefined;
  await leave(vm, asked);
});

test('a disk is compacted below a guest that continues, and not if there is nothing to move', async () => {
  const { vm, asked } = await attachNew();
  await vm.write(0, 8 * MIB, 1);
  await vm.attachment.flush();
  assert.equal(await vm.attachment.compact(), 'nothing');
  // All but 64 KiB of each MiB again, so that little of the first segment is used.
  for (let at = 0; at < 8; at += 1) await vm.write(at * MIB + 64 * KIB, MIB - 64 * KIB, 2 + at);
  await vm.attachment.flush();
  // The version before is kept until the next drain, as the VM reads it during this one.
  await vm.write(9 * MIB, MIB, 20);
  await vm.attachment.flush();
  await vm.write(10 * MIB, MIB, 21);
  const before = vm.attachment.record.version;
  assert.equal(await vm.attachment.compact(), 'moved');
  assert.equal(vm.attachment.record.version, before + 1);
  assert.ok((await vm.graph.read()).equals(vm.model));
  assert.equal(await vm.attachment.compact(), 'nothing');
  await vm.write(0, MIB, 22);
  await leave(vm, asked);
});

test('a compaction that waited for a hibernation leaves the disk as the guest has it mounted', async () => {
  const { vm, asked } = await attachNew();
  await vm.write(0, 8 * MIB, 1);
  await vm.attachment.flush();
  await vm.write(0, 7 * MIB, 2);
  await vm.attachment.flush();
  await vm.write(9 * MIB, MIB, 3);
  using moment = await vm.attachment.seal();
  const compacted = vm.attachment.compact();
  vm.attachment.isFinal = true;
  const { signal } = new AbortController();
  const kept = await keepMomentAnew(vm.attachment, moment, { name: 'hibernation', signal });
  assert.equal(await compacted, 'later');
  await leave(vm, asked);
  const again = await workspaces.take({ ...asked, version: kept.version }, 'vm-again');
  await workspaces.abandon(again);
});

test('what is kept of a moment has nothing that was sealed later, even if that is drained first', async () => {
  const { vm, asked } = await attachNew();
  await vm.write(0, MIB, 1);
  using moment = await vm.attachment.seal();
  const then = Buffer.from(vm.model);
  await vm.write(0, MIB, 2);
  using later = await vm.attachment.seal();
  const drained = vm.attachment.drainThrough(vm.attachment.highestSealed);
  const kept = await keepMoment(vm.attachment, moment, 'snap1');
  later[Symbol.dispose]();
  await drained;
  assert.ok(site.exported(server, asked, kept.version).equals(then));
  await assert.rejects(
    moment.drain(async () => undefined),
    /used already/u,
  );
  await leave(vm, asked);
});

test('a repeated capture keeps the disk of its own moment, and not that of the interrupted attempt', async () => {
  const { vm, asked } = await attachNew();
  const { signal } = new AbortController();
  await vm.write(0, MIB, 1);
  using first = await vm.attachment.seal();
  const interrupted = await keepMomentAnew(vm.attachment, first, { name: 'snap1', signal });
  await vm.write(0, MIB, 2);
  using second = await vm.attachment.seal();
  const kept = await keepMomentAnew(vm.attachment, second, { name: 'snap1', signal });
  assert.ok(kept.version > interrupted.version);
  assert.ok(site.exported(server, asked, kept.version).equals(vm.model));
  await leave(vm, asked);
});

test('a capture that waited too long keeps nothing', async () => {
  const { vm, asked } = await attachNew();
  using moment = await vm.attachment.seal();
  await assert.rejects(keepMomentAnew(vm.attachment, moment, { name: 'snap1', signal: AbortSignal.abort() }));
  const { organization: org, disk } = asked;
  const { snapshots } = (await server.ask({ op: 'snapshots', org, disk }, Nothing)) as { snapshots: [] };
  assert.deepEqual(snapshots, []);
  await leave(vm, asked);
});

test('a push that happens although it is not answered does not cost the overlay that is the top then', async () => {
  const { vm, asked } = await attachNew();
  await vm.write(0, MIB, 1);
  vm.graph.around = (operation, isDone) => {
    if (operation === 'push' && isDone) throw new Error('QMP took longer than 10000 ms');
  };
  await assert.rejects(vm.attachment.seal(), /took longer/u);
  vm.graph.around = () => undefined;
  await vm.write(2 * MIB, MIB, 2); // to the overlay that is the top, without the runner's knowledge
  await seal(vm);
  assert.ok((await vm.graph.read()).equals(vm.model));
  await leave(vm, asked);
});

test('a seal that fails before its push is undone, and the next one succeeds', async () => {
  for (const failing of ['open', 'push']) {
    const { vm, asked } = await attachNew();
    await vm.write(0, MIB, 1);
    vm.graph.around = (operation, isDone) => {
      if (operation === failing && !isDone) throw new Error('the VMM is busy');
    };
    await assert.rejects(vm.attachment.seal(), /busy/u);
    vm.graph.around = () => undefined;
    assert.deepEqual(vm.graph.chain, [0]);
    await vm.attachment.flush();
    await leave(vm, asked);
  }
});

test('callers that seal again and again while the store is away do not add overlays without a limit', async () => {
  const { vm, asked } = await attachNew();
  around = (operation) => {
    if (operation === 'drain') throw new Error('the store is away');
  };
  const sealAll = async (): Promise<void> => {
    for (let count = 0; count < 100; count += 1) await seal(vm);
  };
  await assert.rejects(sealAll(), { code: 'unavailable' });
  around = () => undefined;
  assert.equal(vm.attachment.sealedCount, 16);
  await leave(vm, asked);
});

test('a version that no VM needs any more does not stay loaded in the block server', async () => {
  const count = async (): Promise<number> =>
    ((await server.ask({ op: 'status' }, Nothing)) as { exports: number }).exports;
  const before = await count();
  const { vm, asked } = await attachNew();
  for (let byte = 1; byte <= 3; byte += 1) {
    await vm.write(0, 4 * KIB, byte);
    await vm.attachment.flush();
  }
  assert.equal(await count(), before + 1);
  await leave(vm, asked);
  await workspaces.abandon(await workspaces.take(asked, 'vm'));
  await until('the unloading', async () => (await count()) === before);
});

test('a disk that grows keeps what overlays of the former size hold', async () => {
  const { vm, asked } = await attachNew();
  await vm.write(0, MIB, 1);
  await vm.attachment.grow(2 * DISK_BYTES);
  vm.model = Buffer.concat([vm.model, Buffer.alloc(DISK_BYTES)]);
  await vm.graph.write(DISK_BYTES, MIB, 2);
  vm.model.fill(2, DISK_BYTES, DISK_BYTES + MIB);
  assert.ok((await vm.graph.read()).equals(vm.model));
  await leave(vm, asked);
});

test('a rollback shows the kept version, and the snapshot may be removed then', async () => {
  const { vm: old, asked } = await attachNew();
  await old.write(0, MIB, 1);
  using moment = await old.attachment.seal();
  const kept = await keepMoment(old.attachment, moment, 'snap1');
  const then = Buffer.from(old.model);
  await old.write(0, 2 * MIB, 2);
  await seal(old);
  await old.write(MIB, 2 * MIB, 3);
  const vm = await site.replace(workspaces, old, kept.version);
  vm.model = then;
  workspaces.replaced(vm.attachment);
  workspaces.leave(old.unit);
  await vm.write(4 * MIB, MIB, 4);
  await vm.attachment.revert();
  const { organization: org, disk } = asked;
  await server.ask({ op: 'remove_snapshot', org, disk, version: kept.version }, Nothing);
  assert.ok((await vm.graph.read()).equals(vm.model));
  await leave(vm, asked);
});

test('a disk that has grown keeps its size when it is rolled back', async () => {
  const { vm: old, asked } = await attachNew();
  await old.write(0, MIB, 1);
  using moment = await old.attachment.seal();
  const kept = await keepMoment(old.attachment, moment, 'snap1');
  await old.attachment.grow(2 * DISK_BYTES);
  const vm = await site.replace(workspaces, old, kept.version);
  vm.model.fill(0).fill(1, 0, MIB);
  workspaces.replaced(vm.attachment);
  await vm.attachment.revert();
  assert.equal(vm.attachment.record.size_bytes, 2 * DISK_BYTES);
  vm.model = Buffer.concat([vm.model, Buffer.alloc(DISK_BYTES)]);
  await vm.graph.write(DISK_BYTES, MIB, 2);
  vm.model.fill(2, DISK_BYTES, DISK_BYTES + MIB);
  await vm.attachment.flush();
  assert.ok((await vm.graph.read()).equals(vm.model));
  await leave(vm, asked);
});

test('a drain of the replaced VM that is still running when the rollback is done comes before the rollback', async () => {
  const { vm: old, asked } = await attachNew();
  await old.write(0, MIB, 1);
  using moment = await old.attachment.seal();
  const kept = await keepMoment(old.attachment, moment, 'snap1');
  const then = Buffer.from(old.model);
  await old.write(0, MIB, 2);
  const [held, reached] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  around = async (operation, isDone) => {
    if (operation !== 'drain' || isDone) return;
    reached.resolve();
    await held.promise;
  };
  const flushed = old.attachment.flush();
  flushed.catch(() => undefined);
  await reached.promise;
  const vm = await site.replace(workspaces, old, kept.version);
  vm.model = then;
  workspaces.replaced(vm.attachment);
  const reverted = vm.attachment.revert();
  held.resolve();
  around = () => undefined;
  await assert.rejects(flushed);
  await reverted;
  assert.ok((await vm.graph.read()).equals(vm.model));
  await leave(vm, asked);
});

test('a replacement that is given up leaves the disk with the VM that has it', async () => {
  const { vm: old, asked } = await attachNew();
  await old.write(0, MIB, 1);
  using moment = await old.attachment.seal();
  const kept = await keepMoment(old.attachment, moment, 'snap1');
  await old.write(0, MIB, 2);
  const vm = await site.replace(workspaces, old, kept.version);
  await vm.write(0, MIB, 3);
  workspaces.leave(vm.unit);
  await until('the end of the replacement', () => workspaces.findOfUnit(vm.unit) === undefined);
  await old.attachment.flush();
  assert.ok((await old.graph.read()).equals(old.model));
  await leave(old, asked);
});

test('a VM whose disk was taken by another runner is ended, and nothing more of it is written', async () => {
  const { vm, asked } = await attachNew();
  await vm.write(0, MIB, 1);
  await vm.attachment.flush();
  const { organization: org, disk } = asked;
  const { epoch } = vm.attachment.record;
  // As after the end of the lease.
  await server.ask({ op: 'release', org, disk, runner: workspaces.runner, epoch }, DiskManifest);
  await server.ask({ op: 'take', org, disk, runner: 'other', lease_ms: 60_000 }, DiskManifest);
  await vm.graph.write(0, MIB, 2);
  await assert.rejects(vm.attachment.flush(), { reason: 'stale' });
  await until('the end of the VM', () => vm.orders.includes('end'));
  await leave(vm, asked);
});

test('a disk of another organization, or of a name that is a path, is not found', async () => {
  const { vm, asked } = await attachNew();
  await assert.rejects(workspaces.take({ ...asked, organization: 'other' }, 'vm'), { code: 'not_found' });
  await assert.rejects(workspaces.take({ ...asked, organization: '../org' }, 'vm'), { code: 'internal' });
  await leave(vm, asked);
});

test('a disk goes to one VM only, and to the next when that has left', async () => {
  const { vm, asked } = await attachNew();
  await vm.write(0, MIB, 1);
  await assert.rejects(workspaces.take(asked, 'vm'), { code: 'disk_in_use' });
  workspaces.leave(vm.unit);
  const [first, second] = await Promise.allSettled([
    workspaces.take(asked, 'a'),
    workspaces.take(asked, 'b'),
  ]);
  assert.ok(first.status === 'fulfilled' && second.status === 'rejected');
  assert.equal(first.value.isRecovered, false);
  await workspaces.abandon(first.value);
  const next = await site.attach(workspaces, asked);
  next.model = vm.model;
  assert.ok((await next.graph.read()).equals(vm.model));
  await leave(next, asked);
});
