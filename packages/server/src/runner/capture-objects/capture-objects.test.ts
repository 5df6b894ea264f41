/** Two runners with one object store, through the real programs; only the VMs are missing. */
import assert from 'node:assert/strict';
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { pino } from 'pino';
import { CacheLeases, imageKey } from '../cache/cache-leases.ts';
import { VmDirectory } from '../disk/vm-directory.ts';
import type { CaptureManifest } from '../snapshot/capture-manifest.ts';
import { CaptureStore } from '../snapshot/capture-store.ts';
import { sumFiles } from '../snapshot/memory-writer.ts';
import { buildCapturePrograms } from '../snapshot/testing/capture-programs.ts';
import type { BlockServer } from '../workspace/block-server.ts';
import { DiskSite } from '../workspace/testing/disk-site.ts';
import { CaptureObjects, type CaptureObjectsParts } from './capture-objects.ts';
import { findStoredMark } from './stored-mark.ts';

const MIB = 1024 * 1024;
const RAM_MIB = 64;
const ORG = 'org';
const log = pino({ level: 'silent' });
let site: DiskSite;
let server: BlockServer;
let program: string;
let count = 0;

before(async () => {
  site = new DiskSite();
  program = (await buildCapturePrograms(site.directory)).capture;
  server = site.openServer();
});
after(() => {
  server[Symbol.dispose]();
  site[Symbol.dispose]();
});

const newId = (): string => `snap${String((count += 1)).padStart(20, '0')}`;

class TestRunner {
  readonly directory = join(site.directory, `captures-${(count += 1)}`);
  readonly captures = CaptureStore.open({
    directory: this.directory,
    program,
    onRemoved: () => undefined,
    log,
  });
  readonly forgotten: string[] = [];
  readonly leases = new CacheLeases();
  /** Path of the image that this runner has. */
  image: string | undefined;
  refusal: AppError | undefined;
  neededMiB = 0;
  readonly objects: CaptureObjects;

  constructor(more: Partial<CaptureObjectsParts> = {}) {
    this.objects = new CaptureObjects({
      captures: this.captures,
      server,
      isShared: true,
      disks: { forgetVersion: async ({ disk, version }) => void this.forgotten.push(`${disk} ${version}`) },
      images: { find: () => (this.image === undefined ? undefined : { path: this.image }) },
      leases: this.leases,
      makeRoom: async (neededMiB) => void (this.neededMiB = neededMiB),
      assertUsable: () => {
        if (this.refusal !== undefined) throw this.refusal;
      },
      log,
      ...more,
    });
  }

  async take(id = newId()): Promise<string> {
    await using partial = this.captures.begin();
    const target = new VmDirectory(partial.path);
    mkdirSync(target.overlays);
    for (const file of [target.image, target.scratchBase, target.overlay(0), target.overlay(1)])
      writeFileSync(file, `content of ${file.slice(partial.path.length)}`);
    writeFileSync(join(partial.path, 'devices'), `devices of ${id}`);
    writeFileSync(target.ram, Buffer.alloc(MIB, 7));
    truncateSync(target.ram, RAM_MIB * MIB - 1);
    appendFileSync(target.ram, 'z');
    const files = await this.captures.seal(partial.path);
    const [[, ram] = []] = await sumFiles(program, [target.ram]);
    assert.ok(ram);
    await this.captures.publish(partial.path, buildManifest(id, { ...files, ram }));
    return id;
  }

  read(id: string, name: string): Buffer {
    return readFileSync(join(this.directory, id, name));
  }
}

function buildManifest(id: string, files: CaptureManifest['files']): CaptureManifest {
  return {
    version: 1,
    info: {
      id,
      kind: 'snapshot',
      vm_id: 'run00000000000000000001',
      image: 'coppice/base:1',
      vcpus: 1,
      mem_mib: RAM_MIB,
      disk_mib: 64,
      size_bytes: 1,
      created_at: '2026-01-01T00:00:00.000Z',
      pause_ms: 1.5,
      bound_to: { qemu: '10 <&>' },
      usage: { cpu_ms: 1, mem_peak_bytes: 2 },
      workspace: { organization: ORG, disk: `disk${'1'.repeat(20)}`, version: 3, size_bytes: 4096 },
    },
    image: {
      reference: 'coppice/base:1',
      digest: 'sha256:00',
      config: { env: { A: 'b' }, user: '', workdir: '' },
    },
    shape: { accelerator: 'tcg', vcpus: 1, memMiB: RAM_MIB, diskMiB: 64 },
    machine: 'machine',
    machine_version: 4,
    has_network: true,
    tsc_khz: 2_000_000,
    slot: 3,
    counters: { session: 1, resume: 2 },
    files,
  };
}

const chunksDirectory = (): string => join(site.directory, 'objects', 'captures', ORG, 'chunks');
function listChunks(): string[] {
  const entries = readdirSync(chunksDirectory(), { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

test('another runner fetches a capture and uses it: same files, same holes, same manifest', async () => {
  const [first, second] = [new TestRunner(), new TestRunner()];
  const id = await first.take();
  const { stored_bytes, sent_bytes } = await first.objects.store(id, ORG);
  assert.equal(sent_bytes, stored_bytes);
  assert.equal((await first.objects.store(id, ORG)).sent_bytes, 0);
  assert.deepEqual(findStoredMark(join(first.directory, id)), { organization: ORG, stored_bytes });
  const names = await second.objects.use(
    { id, organization: ORG },
    async ({ directory, overlays }, manifest) => {
      await Promise.resolve();
      assert.deepEqual(
        manifest,
        first.captures.find(id) && buildManifest(id, manifest.files),
        'the manifest',
      );
      assert.equal(overlays.length, 2);
      return directory.path;
    },
  );
  assert.equal(names, join(second.directory, id));
  for (const name of ['ram', 'devices', 'disk/0.qcow2', 'disk/1.qcow2', 'image.squashfs', 'base.ext4']) {
    assert.deepEqual(second.read(id, name), first.read(id, name), name);
    assert.equal(statSync(join(second.directory, id, name)).mode & 0o777, 0o444, name);
  }
  const ram = statSync(join(second.directory, id, 'ram'));
  assert.ok(ram.blocks * 512 < 2 * MIB, `${ram.blocks} blocks of a sparse file`);
  assert.ok(second.neededMiB >= 2 && second.neededMiB < RAM_MIB, `room for ${second.neededMiB} MiB`);
  assert.deepEqual(await second.objects.state(id, ORG), {
    local: true,
    stored: true,
    stored_bytes,
    transfer: 'none',
  });
});

test('an image that the runner has is linked if its bytes are the same, and fetched if they are not', async () => {
  const first = new TestRunner();
  const id = await first.take();
  await first.objects.store(id, ORG);
  for (const [content, isLinked] of [
    [first.read(id, 'image.squashfs'), true],
    [Buffer.from('the same image, prepared on another machine'), false],
  ] as const) {
    const other = new TestRunner();
    other.image = join(site.directory, `image-${(count += 1)}`);
    writeFileSync(other.image, content);
    await other.objects.fetch(id, ORG);
    const fetched = statSync(join(other.directory, id, 'image.squashfs'));
    assert.equal(fetched.ino === statSync(other.image).ino, isLinked);
    assert.deepEqual(other.read(id, 'image.squashfs'), first.read(id, 'image.squashfs'));
    assert.equal(other.leases.isHeld(imageKey('sha256:00')), false);
  }
});

test('a local copy is dropped only if the object store has the capture', async () => {
  const runner = new TestRunner();
  const id = await runner.take();
  await assert.rejects(runner.objects.drop(id, ORG), { code: 'invalid_state' });
  await runner.objects.store(id, ORG);
  await assert.rejects(
    runner.captures.use(id, () => runner.objects.drop(id, ORG)),
    { code: 'invalid_state' },
  );
  await runner.objects.drop(id, ORG);
  assert.equal(runner.captures.find(id), undefined);
  assert.deepEqual(runner.forgotten, [], 'the version of its disk is still kept');
  assert.equal((await runner.objects.fetch(id, ORG)).id, id);
});

test('a capture that cannot continue on this machine is not fetched', async () => {
  const first = new TestRunner();
  const id = await first.take();
  await first.objects.store(id, ORG);
  const other = new TestRunner();
  other.refusal = new AppError('snapshot_unusable', 'the snapshot is bound to another CPU');
  await assert.rejects(other.objects.fetch(id, ORG), { message: /another CPU/u });
  assert.deepEqual(readdirSync(other.directory), []);
});

test('damage in the object store names the snapshot and leaves nothing', async () => {
  const first = new TestRunner();
  const known = new Set(listChunks());
  const id = await first.take();
  await first.objects.store(id, ORG);
  const own = listChunks().find((path) => !known.has(path));
  assert.ok(own !== undefined);
  const whole = readFileSync(own);
  const other = new TestRunner();
  const damage = { code: 'snapshot_unusable', message: new RegExp(id, 'u') };
  for (const damaged of [whole.subarray(1), Buffer.alloc(whole.length), Buffer.alloc(0), undefined]) {
    rmSync(own, { force: true });
    if (damaged !== undefined) writeFileSync(own, damaged);
    await assert.rejects(other.objects.fetch(id, ORG), damage);
  }
  assert.deepEqual(readdirSync(other.directory), []);
  writeFileSync(own, whole);
  await other.objects.fetch(id, ORG);
});

test('a removed capture goes from the store too, with the version of its disk, wherever it is', async () => {
  const [first, second] = [new TestRunner(), new TestRunner()];
  const id = await first.take();
  await first.objects.store(id, ORG);
  await first.objects.remove(id, undefined);
  assert.deepEqual(first.forgotten, [`disk${'1'.repeat(20)} 3`]);
  assert.equal(
    (await second.objects.state(id, ORG)).stored,
    true,
    'without an organization its objects stay',
  );
  await second.objects.remove(id, ORG);
  assert.deepEqual(second.forgotten, first.forgotten);
  assert.equal((await second.objects.state(id, ORG)).stored, false);
  await assert.rejects(second.objects.remove(id, ORG), { code: 'not_found' });
  await assert.rejects(second.objects.fetch(id, ORG), { code: 'not_found' });
  let { unused } = await second.objects.collect(ORG);
  assert.ok(unused > 0);
  ({ unused } = await second.objects.collect(ORG));
  assert.equal(unused, 0);
});

test('with a store on this machine nothing is stored, and local captures are used as before', async () => {
  const runner = new TestRunner({ isShared: false });
  const id = await runner.take();
  const refused = { code: 'invalid_state', message: /COPPICE_OBJECT_STORE/u };
  assert.throws(() => runner.objects.store(id, ORG), refused);
  await assert.rejects(runner.objects.drop(id, ORG), refused);
  await assert.rejects(runner.objects.fetch(newId(), ORG), refused);
  assert.deepEqual(await runner.objects.state(id, ORG), {
    local: true,
    stored: false,
    stored_bytes: 0,
    transfer: 'none',
  });
  const shape = await runner.objects.use(
    { id, organization: ORG },
    async (_, manifest) => manifest.shape.memMiB,
  );
  assert.equal(shape, RAM_MIB);
  await assert.rejects(
    runner.objects.use({ id: newId(), organization: ORG }, async () => undefined),
    { code: 'not_found' },
  );
  await runner.objects.remove(id, ORG);
  assert.deepEqual(readdirSync(runner.directory), []);
});
