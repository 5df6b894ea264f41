/** A full disk of the host: creates are refused, writing VMs wait, and continue unharmed when there is space again. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, rmSync, statfsSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Api } from '../fixtures/api/api.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const MIB = 1 << 20;
const IMAGE = { image: 'coppice/base:1', mem_mib: 256, disk_mib: 1024, timeout: 0 };
const DISK_MIB = 2560;
const RESERVE_MIB = 400;
/** Between the limit at which VMs are paused and the reserve. */
const LEFT_MIB = 120;
const WRITTEN_MIB = 160;
const FILE_PATH = '/var/tmp/coppice-e2e-disk.img';
const MOUNT_PATH = '/var/tmp/coppice-e2e-disk';

const run = (tool: string, ...args: string[]): void => {
  execFileSync(tool, args, { stdio: 'pipe', timeout: 60_000 });
};

function unmount(): void {
  try {
    run('umount', MOUNT_PATH);
  } catch {
    // Nothing was mounted.
  }
  rmSync(FILE_PATH, { force: true });
}

function mount(): void {
  unmount();
  mkdirSync(MOUNT_PATH, { recursive: true, mode: 0o711 });
  writeFileSync(FILE_PATH, '');
  truncateSync(FILE_PATH, DISK_MIB * MIB);
  run('mke2fs', '-q', '-F', '-t', 'ext4', '-m', '0', FILE_PATH);
  run('mount', '-o', 'loop', FILE_PATH, MOUNT_PATH);
}

const freeMiB = (): number => {
  const { bavail, bsize } = statfsSync(MOUNT_PATH);
  return Math.floor((bavail * bsize) / MIB);
};

describe("the host's disk fills", () => {
  let service: Service;
  let api: Api;
  const fillerPath = join(MOUNT_PATH, 'filler');
  before(async () => {
    mount();
    service = await startPrepared({
      instance: 2,
      dataDir: join(MOUNT_PATH, 'data'),
      env: { COPPICE_DISK_RESERVE_MIB: String(RESERVE_MIB) },
    });
    api = new Api(service);
  });
  after(async () => {
    await service?.[Symbol.asyncDispose]();
    unmount();
    rmSync(MOUNT_PATH, { recursive: true, force: true });
  });

  it('creates are refused, a writing VM waits, and its file is intact when there is space again', async () => {
    const { id } = await api.create(IMAGE);
    const { id: idle } = await api.create(IMAGE);
    // Writes of their boot must not be pending when the disk is full.
    for (const each of [id, idle]) await api.exec(each, 'sync');
    run('fallocate', '-l', String((freeMiB() - LEFT_MIB) * MIB), fillerPath);
    const refused = await api.call('POST', '/v1/runs', { body: IMAGE });
    assert.equal(refused.status, 429, refused.text);
    assert.match(refused.text, /disk: \d+ MiB needed, \d+ MiB free at .*COPPICE_DISK_RESERVE_MIB/u);
    assert.ok(refused.headers.get('retry-after'));

    const write = `yes 0123456789 | head -c ${WRITTEN_MIB * MIB} > /workspace/big && sync && sha256sum < /workspace/big > /workspace/sum`;
    await api.exec(id, `(${write}) > /dev/null 2>&1 &`);
    const isPaused = (): boolean =>
      /VM paused: the disk|a host disk failed a request of a VM/u.test(service.output);
    await service.waitFor('the VM to be paused', 60_000, isPaused);
    const waiting = await api.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
    assert.equal(waiting.status, 503, waiting.text);
    assert.match(waiting.text, /the sandbox is paused because the disk of its host is full/u);
    assert.equal((await api.exec(idle, 'echo alive')).stdout, 'alive\n');
    assert.equal(await service.health(), 200);

    rmSync(fillerPath);
    await service.waitFor('the VM to continue', 20_000, () => service.output.includes('VM continues'));
    await service.waitFor('the file to be written', 60_000, async () => {
      const { exit_code: missing } = await api.exec(id, 'test -s /workspace/sum');
      return missing === 0;
    });
    const expected = createHash('sha256').update(Buffer.alloc(WRITTEN_MIB * MIB, '0123456789\n'));
    const sum = `${expected.digest('hex')}  -\n`;
    assert.equal((await api.exec(id, 'cat /workspace/sum')).stdout, sum);
    const read = await api.exec(id, 'echo 3 > /proc/sys/vm/drop_caches; sha256sum < /workspace/big', {
      timeout: 60,
    });
    assert.equal(read.stdout, sum);
    await api.destroy((await api.create(IMAGE)).id);
    for (const each of [id, idle]) assert.equal((await api.destroy(each)).status, 200);
  });
});
