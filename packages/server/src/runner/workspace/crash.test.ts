import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { DISK_BYTES, DiskSite, until } from './testing/disk-site.ts';
import { findAttachmentRecord } from './attachment-record.ts';
import { join } from 'node:path';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { keepMoment } from './disk-moments.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const site = new DiskSite();
after(() => site[Symbol.dispose]());

/** A process that dies: from the operation of that number on, all its operations fail. */
class Fuse {
  #left = Infinity;
  count = 0;

  arm(left: number): void {
    this.#left = left;
    this.count = 0;
  }

  readonly burn = (): void => {
    this.count += 1;
    if (this.count > this.#left) throw new Error('the process was killed');
  };
}

/** Kills the block servers of a site, and not their supervisors. */
function killServers(directory: string): void {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/u.test(name))) {
    const command = readCommand(pid);
    if (command.includes(directory) && command.includes('--listen-fd')) process.kill(Number(pid), 'SIGKILL');
  }
}

function readCommand(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1');
  } catch {
    return '';
  }
}

const EMPTY = { superseded: new Set<string>(), live: new Set<string>() };

test('a runner that is killed between any two operations of a flush loses nothing', async () => {
  // After an operation, before its answer: as before the next one.
  let killedAt = 1;
  for (let isKilled = true; isKilled; killedAt += 2) {
    const fuse = new Fuse();
    const dyingServer = site.openServer(() => fuse.burn());
    const dying = site.open(dyingServer);
    const asked = await site.makeDisk(dyingServer);
    const vm = await site.attach(dying, asked);
    await vm.write(32 * KIB, 64 * KIB, 2);
    vm.graph.around = fuse.burn;
    fuse.arm(killedAt);
    isKilled = await vm.attachment.flush().then(
      () => false,
      () => true,
    );
    fuse.arm(0);
    dying[Symbol.dispose]();
    vm.graph.around = () => undefined;
    await vm.write(48 * KIB, 64 * KIB, 3);
    const server = site.openServer();
    using next = site.open(server);
    // Every other VM dies with the runner.
    if (killedAt % 4 === 1) {
      const adopted = await next.adopt(vm.unit, vm.guest);
      assert.ok(adopted !== undefined);
      await adopted.flush();
      assert.ok((await vm.graph.read()).equals(vm.model), `killed at ${killedAt}, adopted`);
    }
    next.leaveUnadopted({ ...EMPTY, live: new Set([vm.unit]) });
    next.leave(vm.unit);
    await until('the release', () => next.findOfUnit(vm.unit) === undefined);
    assert.ok(site.exported(server, asked).equals(vm.model), `killed at ${killedAt}`);
  }
  assert.ok(killedAt > 15, `${killedAt} operations`);
});

test('a runner killed before its VM had the disk releases it', async () => {
  const first = site.open();
  const server = site.openServer();
  const asked = await site.makeDisk(server);
  server[Symbol.dispose]();
  const unit = site.newUnit();
  first.bind(await first.take(asked, 'vm'), { unit, uid: process.getuid?.() ?? 0 });
  first[Symbol.dispose]();
  using next = site.open();
  next.leaveUnadopted(EMPTY);
  const vm = await site.attach(next, asked);
  assert.ok((await vm.graph.read()).equals(Buffer.alloc(DISK_BYTES)));
});

test('a rollback that was done is completed by the second process after it too', async () => {
  const first = site.open();
  const server = site.openServer();
  const asked = await site.makeDisk(server);
  const old = await site.attach(first, asked);
  await old.write(0, MIB, 1);
  using moment = await old.attachment.seal();
  const kept = await keepMoment(old.attachment, moment, 'snap1');
  await old.write(0, MIB, 2);
  const vm = await site.replace(first, old, kept.version);
  vm.model.fill(1, 0, MIB);
  await vm.write(2 * MIB, MIB, 3);
  first[Symbol.dispose]();
  server[Symbol.dispose]();
  // The store is away from the second process, and the record of the VM is gone when the third one starts.
  const second = site.open(
    site.openServer(() => {
      throw new Error('the store is away');
    }),
  );
  second.leaveUnadopted({ ...EMPTY, superseded: new Set([old.unit]) });
  second[Symbol.dispose]();
  const lastServer = site.openServer();
  using third = site.open(lastServer);
  third.leaveUnadopted(EMPTY);
  await until('the release', () => third.attachments.length === 0);
  assert.ok(site.exported(lastServer, asked).equals(vm.model));
});

test('a rollback that was not done leaves the disk to the VM that has it', async () => {
  const first = site.open();
  const server = site.openServer();
  const asked = await site.makeDisk(server);
  const old = await site.attach(first, asked);
  await old.write(0, MIB, 1);
  using moment = await old.attachment.seal();
  const kept = await keepMoment(old.attachment, moment, 'snap1');
  await old.write(0, MIB, 2);
  const vm = await site.replace(first, old, kept.version);
  first[Symbol.dispose]();
  server[Symbol.dispose]();
  const lastServer = site.openServer();
  using next = site.open(lastServer);
  await next.adopt(old.unit, old.guest);
  next.leaveUnadopted({ ...EMPTY, live: new Set([old.unit]) });
  assert.ok(!existsSync(join(site.overlays, vm.unit)));
  next.leave(old.unit);
  await until('the release', () => next.attachments.length === 0);
  assert.ok(site.exported(lastServer, asked).equals(old.model));
});

test('a block server that dies in the middle of a drain is started again, and the drain completes', async () => {
  const server = site.openServer();
  using workspaces = site.open(server);
  const asked = await site.makeDisk(server);
  const vm = await site.attach(workspaces, asked);
  for (let byte = 1; byte <= 3; byte += 1) {
    await vm.write(byte * MIB, 4 * MIB, byte);
    const flushed = vm.attachment.flush();
    killServers(site.directory);
    await flushed.catch(() => undefined);
  }
  await until('the drain', async () =>
    vm.attachment.flush().then(
      () => true,
      () => false,
    ),
  );
  assert.ok(site.exported(server, asked).equals(vm.model));
  assert.ok((await vm.graph.read()).equals(vm.model));
});

test('a record that cannot be read is neither removed nor taken for none', async () => {
  const unit = site.newUnit();
  const first = site.open();
  const { overlayDirectory } = first.makePlace(unit);
  first[Symbol.dispose]();
  const directory = join(overlayDirectory, '..');
  writeFileSync(join(directory, 'disk.json'), '{"format":2}');
  using next = site.open();
  next.leaveUnadopted(EMPTY);
  next.leave(unit);
  assert.ok(existsSync(directory));
  assert.throws(() => findAttachmentRecord(directory));
});
