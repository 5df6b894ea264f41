/** The device of persistent disks on real QEMU, in its jail. The test does what the runner does with it. */
import assert from 'node:assert/strict';
import { chmodSync, chownSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { BlockWriter } from '../fixtures/disks/block-writer.ts';
import { DiskVm, openDiskPlace, type DiskPlace } from '../fixtures/disks/disk-vm.ts';
import { VersionServer } from '../fixtures/disks/version-server.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const DIRECTORY = '/var/tmp/coppice-e2e-workspace';
const SIZE_BYTES = 1024 ** 3;
const MOUNT = 'mkdir -p /workspace && mount -o discard /dev/vdc /workspace';
/** Appends to a file on the disk, in the background, until it is stopped. */
const COUNT = `rm -f /run/stop; cat > /run/counter <<'END'
i=0
while [ ! -e /run/stop ]; do i=$((i + 1)); echo $i >> /workspace/counter; sync /workspace/counter; done
touch /run/stopped
END
sh /run/counter > /dev/null 2>&1 &`;

/** A VM with a disk, and the server of its versions. */
class Attached implements AsyncDisposable {
  readonly server: VersionServer;
  readonly disk: DiskVm;
  /** Overlays that are not in a version yet, the top last. */
  overlays: number[] = [];

  constructor(server: VersionServer, disk: DiskVm) {
    this.server = server;
    this.disk = disk;
  }

  static async start(place: DiskPlace, name: string): Promise<Attached> {
    const server = await VersionServer.start(join(DIRECTORY, `${name}-server`), SIZE_BYTES);
    const disk = await DiskVm.start(place, { name, serverDirectory: server.directory });
    const attached = new Attached(server, disk);
    await disk.wake();
    disk.makeOverlay(0, SIZE_BYTES);
    attached.overlays = [0];
    await disk.vm.workspace.attach({ version: server.newest, overlay: 0, sizeBytes: SIZE_BYTES });
    await disk.run(MOUNT);
    return attached;
  }

  /** Puts a new overlay on top. The sealed one is frozen, as the runner does. */
  async seal(): Promise<void> {
    const { workspace } = this.disk.vm;
    const top = this.overlays.at(-1) ?? 0;
    this.disk.makeOverlay(top + 1, SIZE_BYTES);
    await workspace.open(top + 1);
    await workspace.push(top + 1);
    this.overlays.push(top + 1);
    chownSync(this.disk.overlayPath(top), 0, 0);
    chmodSync(this.disk.overlayPath(top), 0o444);
  }

  /** Makes the `count` lowest overlays a version, and puts the next one onto it. */
  async drain(count: number): Promise<void> {
    const { workspace } = this.disk.vm;
    const sealed = this.overlays.slice(0, count);
    const { number: former } = this.server.newest;
    const version = await this.server.drain(sealed.map((overlay) => this.disk.overlayPath(overlay)));
    await workspace.rebase(this.overlays[count] ?? 0, version);
    for (const overlay of sealed.toReversed()) {
      await workspace.closeOverlay(overlay);
      rmSync(this.disk.overlayPath(overlay));
    }
    await workspace.closeVersion(former);
    this.overlays = this.overlays.slice(count);
  }

  /** Checks what is in the versions and the overlays, after the VM has ended or unmounted the disk. */
  check(writer: BlockWriter): void {
    const raw = join(DIRECTORY, 'raw');
    this.server.copyDisk(
      this.overlays.map((overlay) => this.disk.overlayPath(overlay)),
      raw,
    );
    writer.check(raw);
    rmSync(raw);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.disk[Symbol.asyncDispose]();
    await this.server.close();
  }
}

describe('the device of persistent disks', () => {
  let service: Service;
  let place: DiskPlace;

  before(async () => {
    rmSync(DIRECTORY, { recursive: true, force: true });
    mkdirSync(DIRECTORY, { mode: 0o711 });
    service = await startPrepared({ instance: 13, env: { COPPICE_NETWORK: 'off' } });
    place = await openDiskPlace(service, DIRECTORY);
  });
  after(async () => {
    await service[Symbol.asyncDispose]();
    rmSync(DIRECTORY, { recursive: true, force: true });
  });

  it('is empty until a running guest gets a disk, which another runner finds and grows', async () => {
    await using server = await VersionServer.start(join(DIRECTORY, 'first-server'), SIZE_BYTES);
    await using disk = await DiskVm.start(place, { name: 'first', serverDirectory: server.directory });
    await disk.wake();
    assert.deepEqual(await disk.vm.workspace.list(), { overlays: [], versions: [], top: undefined });
    const look = 'cd /sys/block/vdc; cat serial; echo; cat size queue/discard_granularity';
    assert.deepEqual((await disk.run(look)).split(/\s+/u), ['workspace', '2048', '131072']);
    disk.makeOverlay(0, SIZE_BYTES);
    const source = { version: server.newest, overlay: 0, sizeBytes: SIZE_BYTES };
    await disk.vm.workspace.attach(source);
    await disk.vm.workspace.attach(source);
    await disk.run(`${MOUNT} && echo kept > /workspace/file && sync`);
    await disk.adopt();
    assert.deepEqual(await disk.vm.workspace.list(), { overlays: [0], versions: [1], top: 0 });
    await disk.vm.workspace.grow(100 * SIZE_BYTES);
    assert.equal(await disk.run('cat /sys/block/vdc/size /workspace/file'), `${200 * 1024 * 1024}\nkept`);
    const limits = readFileSync(`/proc/${disk.vm.identity.pid}/limits`, 'utf8');
    assert.ok(Number(/^Max file size +(\d+)/mu.exec(limits)?.[1]) > 100 * SIZE_BYTES);
  });

  it('keeps every block while overlays are sealed, drained and closed below a writing guest', async () => {
    await using attached = await Attached.start(place, 'flips');
    const { disk } = attached;
    const writer = new BlockWriter();
    await writer.start(disk);
    for (let flip = 0; flip < 10; flip += 1) {
      await attached.seal();
      await writer.waitFor(writer.last + 20);
      // With a backlog, which drains from the bottom: the new backing is that of an overlay in the middle.
      if (flip % 3 === 2) await attached.drain(1);
      else if (flip % 3 === 1) await writer.waitFor(writer.last + 5);
      else await attached.drain(attached.overlays.length - 1);
    }
    const { overlays, versions, top } = await disk.vm.workspace.list();
    assert.deepEqual([overlays, versions, top], [[10], [attached.server.newest.number], 10]);
    await writer.stop(disk);
    await disk.run('umount /workspace');
    await disk.kill();
    attached.check(writer);
  });

  it('loses no acknowledged block if QEMU is killed, at rest or between the steps of a flip', async () => {
    for (const point of ['rest', 'sealed', 'drained']) {
      await using attached = await Attached.start(place, `kill-${point}`);
      const writer = new BlockWriter();
      await writer.start(attached.disk);
      await attached.seal();
      await attached.drain(1);
      await writer.waitFor(writer.last + 50);
      if (point !== 'rest') await attached.seal();
      if (point === 'drained') await attached.server.drain([attached.disk.overlayPath(1)]);
      process.kill(attached.disk.vm.identity.pid, 'SIGKILL');
      await attached.disk.kill();
      // A version may have an overlay that is still there: in ascending order it is harmless twice.
      attached.check(writer);
    }
  });

  it('lets the guest write while the block server is away, and read when it is back', async () => {
    await using attached = await Attached.start(place, 'away');
    const { disk, server } = attached;
    const writer = new BlockWriter();
    await disk.run('head -c 30M /dev/urandom > /workspace/old; sync');
    const sum = await disk.run('md5sum < /workspace/old');
    await attached.seal();
    await attached.drain(1);
    await writer.start(disk);
    await server.close();
    await writer.waitFor(writer.last + 20);
    await server.open();
    await writer.waitFor(writer.last + 20);
    await writer.stop(disk);
    assert.equal(await disk.run('echo 3 > /proc/sys/vm/drop_caches; md5sum < /workspace/old'), sum);
    await disk.run('umount /workspace');
    await disk.kill();
    attached.check(writer);
  });

  it('continues a guest with the disk mounted, on another overlay and version than it was saved with', async () => {
    await using attached = await Attached.start(place, 'saved');
    const { disk, server } = attached;
    const writer = new BlockWriter();
    await disk.run('echo before > /workspace/file; sync');
    await writer.start(disk);
    await writer.stop(disk);
    await disk.run(`${COUNT} echo late > /workspace/unsynced`);
    await disk.vm.stop();
    await attached.seal();
    const from = await disk.save();
    const version = await server.drain([disk.overlayPath(0)]);
    attached.overlays = [];
    for (const overlay of [0, 1]) rmSync(disk.overlayPath(overlay));
    const source = { version, overlay: 7, sizeBytes: SIZE_BYTES };
    const options = { name: 'restored', serverDirectory: server.directory, from, source };
    await using restored = await DiskVm.start(place, options);
    assert.deepEqual(await restored.vm.workspace.list(), {
      overlays: [7],
      versions: [version.number],
      top: 7,
    });
    await restored.wake();
    assert.equal(await restored.run('cat /workspace/file /workspace/unsynced'), 'before\nlate');
    const next = new Attached(server, restored);
    next.overlays = [7];
    await writer.start(restored);
    await next.seal();
    await next.drain(1);
    await writer.waitFor(writer.last + 20);
    await writer.stop(restored);
    const counted = await restored.run(
      'touch /run/stop; until [ -e /run/stopped ]; do sleep 0.1; done; cat /workspace/counter; umount /workspace',
    );
    const numbers = counted.split('\n').map(Number);
    assert.ok(numbers.length > 10);
    assert.deepEqual(
      numbers,
      numbers.map((_, index) => index + 1),
    );
    await restored.kill();
    next.check(writer);
  });
});
