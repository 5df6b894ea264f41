/**
 * Disks of sizes between those of templates: they grow during the create, and are then captured and copied like others.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Api } from '../fixtures/api/api.ts';
import { CloneApi } from '../fixtures/clones/clone-api.ts';
import { checkSavedDisk } from '../fixtures/captures/disk-check.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';
import { countTemplates, countTemplatesAt } from '../fixtures/service/template-log.ts';

const SMALL = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };
/** More than the template's disk of 64 MiB can hold. */
const FILE_MIB = 70;
const SUM = 'md5sum < /root/file';
/** Drops the guest's page cache first, so that the file is read from the disk. */
const COLD_SUM = `sync; echo 3 > /proc/sys/vm/drop_caches; ${SUM}`;

let service: Service;
let api: Api;
let clones: CloneApi;
before(async () => {
  service = await startPrepared({ instance: 8, env: { COPPICE_WARM_POOL: '1' } });
  api = new Api(service);
  clones = new CloneApi(api);
  const { id } = await api.create({ ...SMALL, disk_mib: 64 });
  await countTemplatesAt(service, id);
  await api.destroy(id);
});
after(async () => {
  await service[Symbol.asyncDispose]();
});

async function shell(id: string, command: string): Promise<string> {
  const { exit_code: code, stdout, stderr } = await api.exec(id, command, { timeout: 120 });
  assert.equal(code, 0, `${command}: ${stdout}${stderr}`);
  return stdout.trim();
}

async function sizeMiB(id: string): Promise<number> {
  return Number(await shell(id, 'df -k --output=size / | tail -1')) / 1024;
}

async function writeFile(id: string): Promise<string> {
  return shell(id, `head -c ${FILE_MIB}M /dev/urandom > /root/file; ${COLD_SUM}`);
}

test('a disk size between two templates starts from the smaller template, and the guest sees that size', async () => {
  const before = countTemplates(service);
  for (const disk_mib of [64, 65, 100, 300, 511]) {
    const { id } = await api.create({ ...SMALL, disk_mib });
    assert.equal(await countTemplatesAt(service, id), before);
    const seenMiB = await sizeMiB(id);
    assert.ok(seenMiB <= disk_mib && seenMiB > 0.84 * disk_mib, `${seenMiB} of ${disk_mib} MiB`);
    await api.destroy(id);
  }
});

test('a warm VM serves any of these sizes', async () => {
  const linesWith = (...texts: string[]): number =>
    service.output.split('\n').filter((line) => texts.every((text) => line.includes(text))).length;
  const kept = (): number => linesWith('"VM kept warm"') - linesWith('"VM created"', '"warm":true');
  for (const disk_mib of [64, 200]) {
    // The pool retries every 30 s if it could not assemble a VM at once.
    await service.waitFor('a warm VM', 45_000, () => kept() === 1);
    const { id } = await api.create({ ...SMALL, disk_mib });
    await service.waitFor('the log', 5000, () => linesWith('"VM created"', id) === 1);
    assert.equal(linesWith('"warm":true', id), 1, `a create with a disk of ${disk_mib} MiB was cold`);
    assert.ok((await sizeMiB(id)) > 0.85 * disk_mib);
    await api.destroy(id);
  }
});

test('a grown disk can be filled up to the size of its file system', async () => {
  const { id } = await api.create({ ...SMALL, disk_mib: 100 });
  const filled = await api.exec(id, 'head -c 200M /dev/zero > /root/file', { timeout: 120 });
  assert.notEqual(filled.exit_code, 0);
  assert.match(filled.stderr, /No space left on device/u);
  const writtenMiB = Number(await shell(id, 'stat -c %s /root/file')) / 1024 ** 2;
  assert.ok(writtenMiB > FILE_MIB && writtenMiB < 100, `${writtenMiB} MiB were written`);
  await shell(id, 'rm /root/file');
  assert.equal(await writeFile(id), await shell(id, COLD_SUM));
  await api.destroy(id);
});

test('a grown disk is intact in a fork, a snapshot, a hibernation, a rollback and under the next runner', async () => {
  const { id } = await api.create({ ...SMALL, disk_mib: 200 });
  const sum = await writeFile(id);
  const size = await sizeMiB(id);
  const assertWhole = async (copy: string): Promise<void> => {
    assert.deepEqual([await shell(copy, COLD_SUM), await sizeMiB(copy)], [sum, size]);
    // Writes to the part beyond the template's disk, in the copy's own overlay.
    await shell(
      copy,
      `head -c ${FILE_MIB}M /root/file > /root/copy; cmp /root/file /root/copy; rm /root/copy`,
    );
  };

  const snapshotId = await clones.snapshot(id);
  const [child] = await clones.fork(id, 1);
  assert.ok(child !== undefined);
  await assertWhole(child.id);
  const [grandchild] = await clones.fork(child.id, 1);
  assert.ok(grandchild !== undefined);
  await api.destroy(child.id);
  await assertWhole(grandchild.id);
  await api.destroy(grandchild.id);

  await clones.hibernate(id);
  await clones.resume(id);
  await assertWhole(id);
  await service.killRole('runner');
  await assertWhole(id);
  await shell(id, 'rm /root/file');
  await clones.rollback(id, snapshotId);
  await assertWhole(id);
  await api.destroy(id);

  const restored = await clones.restore(snapshotId);
  assert.equal(restored['disk_mib'], 200);
  await assertWhole(restored.id);
  await api.destroy(restored.id);
  await clones.deleteSnapshot(snapshotId);
});

test('layers of a grown disk are joined without loss, and its file system has no errors', async () => {
  const { id } = await api.create({ ...SMALL, disk_mib: 150 });
  const sum = await writeFile(id);
  // Enough captures for the runner to join the layers in the background.
  for (let layer = 0; layer < 7; layer += 1) {
    await shell(id, `dd if=/root/file of=/root/${layer} bs=1M count=2 skip=${layer} 2> /dev/null`);
    await clones.deleteSnapshot(await clones.snapshot(id));
  }
  for (let layer = 0; layer < 7; layer += 1)
    await shell(id, `dd if=/root/file bs=1M count=2 skip=${layer} 2> /dev/null | cmp - /root/${layer}`);
  assert.equal(await shell(id, COLD_SUM), sum);
  // Makes all file systems on disks read-only, with up-to-date superblocks.
  await shell(
    id,
    'sync; echo u > /proc/sysrq-trigger; until ! touch /root/probe 2> /dev/null; do sleep 0.1; done',
  );
  const snapshotId = await clones.snapshot(id);
  assert.deepEqual(checkSavedDisk(join(service.dataDir, 'runner', 'captures', snapshotId)), { sizeMiB: 150 });
  await api.destroy(id);
  await clones.deleteSnapshot(snapshotId);
});
