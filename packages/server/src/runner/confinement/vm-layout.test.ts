import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildQemuArguments } from '../qemu/qemu-arguments.ts';
import { type MachineFiles, type StartMode } from '../vm/vm-files.ts';
import { arrangeInside, arrangeOutside } from './vm-layout.ts';

const FILES: MachineFiles = {
  kernelPath: '/host/kernel',
  initramfsPath: '/host/initramfs',
  ramPath: '/host/ram',
  socketDirectory: '/host/sockets',
  disks: {
    imagePath: '/host/image',
    scratchBasePath: '/host/base',
    overlayDirectory: '/host/overlays',
    overlays: [0, 3],
  },
};
const RESTORE: StartMode = { kind: 'restore', statePath: '/host/state', isDeferred: false, ownsRam: false };

function writableSources(mode: StartMode): string[] {
  return arrangeInside(FILES, mode)
    .mounts.filter(({ writable }) => writable === true)
    .map(({ source }) => source)
    .toSorted();
}

test('a sandbox may write its disk and its sockets, a template its memory as well', () => {
  assert.deepEqual(writableSources(RESTORE), ['/dev/null', '/host/overlays', '/host/sockets']);
  assert.deepEqual(writableSources({ kind: 'boot' }), [
    '/dev/null',
    '/host/overlays',
    '/host/ram',
    '/host/sockets',
  ]);
});

test('nothing of a VM may be executed, and only /dev/null is a device', () => {
  const { mounts } = arrangeInside(FILES, RESTORE);
  assert.deepEqual(
    mounts.filter(({ executable }) => executable === true),
    [],
  );
  assert.deepEqual(
    mounts.filter(({ device }) => device === true).map(({ target }) => target),
    ['/dev/null'],
  );
});

test('QEMU’s arguments name places in the jail, each of which is mounted, and nothing of the host', () => {
  const { files, mode, mounts } = arrangeInside(FILES, RESTORE);
  const shape = { accelerator: 'tcg', vcpus: 1, memMiB: 256 } as const;
  const args = buildQemuArguments({ name: 'u1', shape, files, network: true, tscKhz: 1, mode }).join(' ');
  assert.ok(!args.includes('/host'), args);
  for (const { target } of mounts) assert.ok(target === '/dev/null' || args.includes(target), target);
});

test('without a jail’s root directory the paths are the host’s', () => {
  assert.deepEqual(arrangeOutside(FILES, RESTORE), { files: FILES, mode: RESTORE, mounts: [] });
});
