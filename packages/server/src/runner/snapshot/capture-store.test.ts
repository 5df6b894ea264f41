import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pino } from 'pino';
import { VmDirectory } from '../disk/vm-directory.ts';
import type { CaptureManifest } from './capture-manifest.ts';
import { CaptureStore } from './capture-store.ts';
import { sumFiles } from './memory-writer.ts';
import { buildCapturePrograms } from './testing/capture-programs.ts';

const ID = 'snap00000000000000000001';
const log = pino({ level: 'silent' });
let root: string;
let program: string;
let count = 0;

before(async () => {
  root = await mkdtemp(join(tmpdir(), 'coppice-captures-'));
  program = (await buildCapturePrograms(root)).capture;
});

after(() => rm(root, { recursive: true, force: true }));

function openStore(
  directory = join(root, `store-${(count += 1)}`),
  onRemoved = (): void => undefined,
): { store: CaptureStore; directory: string } {
  return { store: CaptureStore.open({ directory, program, onRemoved, log }), directory };
}

/** Writes the files of a capture as a VM does. */
function fill(path: string): void {
  const target = new VmDirectory(path);
  mkdirSync(target.overlays);
  for (const file of [target.ram, target.image, target.scratchBase, target.overlay(0), target.overlay(1)])
    writeFileSync(file, `content of ${file.slice(path.length)}`);
  writeFileSync(join(path, 'devices'), 'state');
}

async function publish(store: CaptureStore, id = ID): Promise<CaptureManifest> {
  await using partial = store.begin();
  fill(partial.path);
  const files = await store.seal(partial.path);
  const [[, ram] = []] = await sumFiles(program, [join(partial.path, 'ram')]);
  assert.ok(ram);
  const manifest: CaptureManifest = {
    version: 1,
    info: {
      id,
      kind: 'snapshot',
      vm_id: 'run00000000000000000001',
      image: 'coppice/base:1',
      vcpus: 1,
      mem_mib: 256,
      disk_mib: 64,
      size_bytes: 1,
      created_at: new Date().toISOString(),
      pause_ms: 1.5,
      bound_to: { qemu: '10' },
      usage: { cpu_ms: 1, mem_peak_bytes: 2 },
    },
    image: {
      reference: 'coppice/base:1',
      digest: 'sha256:00',
      config: { env: { A: 'b' }, user: '', workdir: '' },
    },
    shape: { accelerator: 'tcg', vcpus: 1, memMiB: 256, diskMiB: 64 },
    machine: 'machine',
    machine_version: 4,
    has_network: true,
    tsc_khz: 2_000_000,
    slot: 3,
    counters: { session: 1, resume: 2 },
    files: { ...files, ram },
  };
  await store.publish(partial.path, manifest);
  return manifest;
}

test('a capture is listed only once it is published, also by the next process', async () => {
  const { store, directory } = openStore();
  const partial = store.begin();
  fill(partial.path);
  assert.deepEqual(store.list(), []);
  assert.deepEqual(openStore(directory).store.list(), [], 'the next process removes a partial one');
  assert.equal(existsSync(partial.path), false);
  const { info } = await publish(store);
  assert.deepEqual(store.list(), [info]);
  const next = openStore(directory).store;
  assert.deepEqual(next.find(ID), info);
  assert.deepEqual(next.machineKeys, ['machine']);
  assert.deepEqual(readdirSync(directory), [ID]);
});

test('the removal of a capture is reported when its links are gone, and so is that of one that failed', async () => {
  const directory = join(root, `store-${(count += 1)}`);
  const left: string[][] = [];
  const { store } = openStore(directory, () => left.push(readdirSync(directory)));
  await publish(store);
  left.splice(0);
  {
    await using partial = store.begin();
    fill(partial.path);
  }
  await store.remove(ID);
  assert.deepEqual(left, [[ID], []]);
});

test('a published capture gives its files, overlays from the lowest', async () => {
  const { store, directory } = openStore();
  const manifest = await publish(store);
  const names = await store.use(ID, async ({ overlays, statePath, directory: files }, found) => {
    assert.deepEqual(found, manifest);
    return [...overlays, statePath, files.ram].map((path) => path.slice(directory.length + ID.length + 2));
  });
  assert.deepEqual(names, ['disk/0.qcow2', 'disk/1.qcow2', 'devices', 'ram']);
});

for (const name of ['ram', 'devices', 'disk/0.qcow2', 'disk/1.qcow2']) {
  test(`this process and the next detect a flipped byte in ${name} and name the file`, async () => {
    const { store, directory } = openStore();
    await publish(store);
    await store.use(ID, async () => undefined);
    const path = join(directory, ID, name);
    const bytes = readFileSync(path);
    bytes[bytes.length - 1]! ^= 1;
    writeFileSync(path, bytes);
    for (const each of [store, openStore(directory).store]) {
      await assert.rejects(
        each.use(ID, async () => undefined),
        (error: Error & { code?: string }) => {
          assert.equal(error.code, 'snapshot_unusable');
          assert.ok(error.message.includes(name), error.message);
          return true;
        },
      );
    }
  });
}

test('a missing file is damage', async () => {
  const { store, directory } = openStore();
  await publish(store);
  rmSync(join(directory, ID, 'disk', '1.qcow2'));
  await assert.rejects(
    store.use(ID, async () => undefined),
    { code: 'snapshot_unusable' },
  );
});

test('a manifest with a changed byte is refused, and the capture can still be deleted', async () => {
  const { store, directory } = openStore();
  await publish(store);
  const path = join(directory, ID, 'manifest.json');
  writeFileSync(path, readFileSync(path, 'utf8').replace('"slot": 3', '"slot": 4'));
  const next = openStore(directory).store;
  for (const each of [store, next]) {
    await assert.rejects(
      each.use(ID, async () => undefined),
      { code: 'snapshot_unusable', message: /its manifest/u },
    );
  }
  await next.remove(ID);
  assert.deepEqual(readdirSync(directory), []);
});

test('a capture in use is not deleted', async () => {
  const { store } = openStore();
  await publish(store);
  const making = Promise.withResolvers<undefined>();
  const use = store.use(ID, () => making.promise);
  await assert.rejects(store.remove(ID), { code: 'invalid_state' });
  making.resolve(undefined);
  await use;
  await store.remove(ID);
  await assert.rejects(
    store.use(ID, async () => undefined),
    { code: 'not_found' },
  );
  await assert.rejects(store.remove(ID), { code: 'not_found' });
});

test('a capture that cannot be moved stays, and the next attempt deletes it', async () => {
  const { store, directory } = openStore();
  await publish(store);
  const obstacle = join(directory, `${ID}.partial`, 'obstacle');
  mkdirSync(obstacle, { recursive: true });
  await assert.rejects(store.remove(ID), { code: 'ENOTEMPTY' });
  assert.equal(store.find(ID)?.id, ID);
  await store.use(ID, async ({ overlays }) => assert.equal(overlays.length, 2));
  rmSync(join(directory, `${ID}.partial`), { recursive: true });
  await store.remove(ID);
  assert.deepEqual([store.find(ID), readdirSync(directory)], [undefined, []]);
});

test('the files that a VM has linked outlive their capture', async () => {
  const { store, directory } = openStore();
  await publish(store);
  const path = join(root, `vm-${(count += 1)}`);
  mkdirSync(path);
  const vm = new VmDirectory(path);
  await store.use(ID, async ({ directory: files, overlays }) => {
    const { ram: ramPath, image: imagePath, scratchBase: scratchBasePath } = files;
    const shared = { ramPath, imagePath, scratchBasePath, frozen: overlays, top: { sizeMiB: 64 } };
    assert.deepEqual(vm.take(shared, process.getuid?.() ?? 0), [0, 1, 2]);
  });
  await store.remove(ID);
  assert.deepEqual(readdirSync(directory), []);
  assert.equal(readFileSync(vm.ram, 'utf8'), 'content of /ram');
  assert.equal(readFileSync(vm.overlay(1), 'utf8'), 'content of /disk/1.qcow2');
  assert.equal(statSync(vm.overlay(1)).mode & 0o777, 0o444, 'frozen');
  assert.equal(statSync(vm.overlay(2)).mode & 0o777, 0o600, 'its own');
});
