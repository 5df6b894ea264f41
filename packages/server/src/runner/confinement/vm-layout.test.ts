import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildQemuArguments } from '../qemu/qemu-arguments.ts';
import { arrangeInside, arrangeOutside, type MachineFiles, type StartMode } from './vm-layout.ts';

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
  workspace: {
    overlayDirectory: '/host/workspace',
    serverDirectory: '/host/blocks',
    source: { version: { number: 7, exportName: 'secret' }, overlay: 2, sizeBytes: 4096 },
  },
};
const RESTORE: StartMode = { kind: 'restore', statePath: '/host/state', isDeferred: false, ownsRam: false };

function writableSources(mode: StartMode): string[] {
  return arrangeInside(FILES, mode)
    .mounts.filter(({ writable }) => writable === true)
    .map(({ source }) => source)
    .toSorted();
}

test('a sandbox may write its disk and sockets; a template may also write its memory', () => {
  assert.deepEqual(writableSources(RESTORE), [
    '/dev/null',
    '/host/overlays',
    '/host/sockets',
    '/host/workspace',
  ]);
  assert.deepEqual(writableSources({ kind: 'boot' }), [
    '/dev/null',
    '/host/overlays',
    '/host/ram',
    '/host/sockets',
    '/host/workspace',
  ]);
});

test('no file of a VM is executable, and only /dev/null is a device', () => {
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

/** Opened by commands to QEMU. */
const UNNAMED = new Set(['/dev/null', '/workspace', '/blocks']);

test('QEMU’s arguments name only paths in the jail, each mounted path, and no version of a disk', () => {
  const { files, mode, mounts } = arrangeInside(FILES, RESTORE);
  const shape = { accelerator: 'tcg', vcpus: 1, memMiB: 256 } as const;
  const args = buildQemuArguments({ name: 'u1', shape, files, network: true, tscKhz: 1, mode }).join(' ');
  assert.ok(!args.includes('/host'), args);
  for (const { target } of mounts) assert.equal(args.includes(target), !UNNAMED.has(target), target);
  assert.ok(!args.includes('secret'), args);
});

test('outside a jail the paths are the host’s', () => {
  assert.deepEqual(arrangeOutside(FILES, RESTORE), { files: FILES, mode: RESTORE, mounts: [] });
});
