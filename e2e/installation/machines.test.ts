/**
 * An upgrade of the files that VMs are started with: running VMs keep the old ones, new VMs get the new ones, and
 * unused ones are removed.
 */
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { loadConfig } from '../../packages/server/src/config/config.ts';
import { mayRunFrom } from '../../packages/server/src/runner/confinement/qemu-closure.ts';
import { Api } from '../fixtures/api/api.ts';
import { Service } from '../fixtures/service/service.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256, disk_mib: 512, timeout: 0 };
const ASSETS = '/var/tmp/coppice-e2e-assets';
const MANIFEST = join(ASSETS, 'manifest.json');
/** An archive may end in any number of zeros. */
const PADDING = Buffer.alloc(512);

describe('an upgrade of the initramfs', () => {
  let service: Service;
  let api: Api;
  let earlier: string;
  let later: string;
  before(async () => {
    rmSync(ASSETS, { recursive: true, force: true });
    mkdirSync(ASSETS, { mode: 0o755 });
    copyFileSync(join(loadConfig().assetsDir, 'manifest.json'), MANIFEST);
    service = await Service.start({ instance: 4, env: { COPPICE_ASSETS_DIR: ASSETS } });
    api = new Api(service);
  });
  after(async () => {
    await service?.[Symbol.asyncDispose]();
    rmSync(ASSETS, { recursive: true, force: true });
  });

  const machines = (): string => join(service.dataDir, 'runner', 'machines');
  const listMachines = (): string[] => readdirSync(machines());
  /** Lists the machines of the VMs, in the order of their processes. */
  const listUsed = (): string[] =>
    service
      .vmPids()
      .flatMap((pid) => listMachines().filter((key) => mayRunFrom(pid, join(machines(), key, 'qemu'))));

  const upgrade = (): void => {
    const manifest = JSON.parse(readFileSync(MANIFEST, 'utf8')) as { initramfs: { path: string } };
    const path = join(ASSETS, 'initramfs.cpio');
    writeFileSync(path, Buffer.concat([readFileSync(manifest.initramfs.path), PADDING]));
    writeFileSync(MANIFEST, JSON.stringify({ ...manifest, initramfs: { path } }));
  };

  it('leaves a sandbox on the machine that started it', async () => {
    ({ id: earlier } = await api.create(IMAGE));
    const [before] = listMachines();
    assert.deepEqual(listUsed(), [before]);
    await service.stop();
    upgrade();
    await service.launch();
    assert.equal((await api.exec(earlier, 'echo still here')).stdout, 'still here\n');
    assert.deepEqual([listMachines().length, listUsed()], [2, [before]]);
  });

  it('gives the next sandbox the new machine', async () => {
    ({ id: later } = await api.create(IMAGE));
    assert.equal((await api.exec(later, 'echo here too')).stdout, 'here too\n');
    assert.deepEqual(new Set(listUsed()), new Set(listMachines()));
  });

  it('removes the earlier machine when its last sandbox is gone', async () => {
    await service.stop();
    await service.launch();
    assert.equal(listMachines().length, 2);
    await api.destroy(earlier);
    await service.stop();
    await service.launch();
    assert.equal(listMachines().length, 1);
    assert.deepEqual(listUsed(), listMachines());
    assert.equal((await api.exec(later, 'echo unharmed')).stdout, 'unharmed\n');
  });
});
