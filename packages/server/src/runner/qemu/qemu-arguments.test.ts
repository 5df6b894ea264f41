import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildQemuArguments } from './qemu-arguments.ts';
import { type MachineShape } from '../vm/shape.ts';

function cpuOf(shape: Pick<MachineShape, 'accelerator' | 'cpu'>): string | undefined {
  const words = buildQemuArguments({
    name: 'vm',
    shape: { ...shape, vcpus: 1, memMiB: 256 },
    files: {
      kernelPath: '/kernel',
      initramfsPath: '/initramfs',
      ramPath: '/ram',
      socketDirectory: '/sockets',
      disks: undefined,
      workspace: undefined,
    },
    network: false,
    tscKhz: 1,
    mode: { kind: 'boot' },
  });
  return words[words.indexOf('-cpu') + 1];
}

test('a VM has the CPU of its record; a record without one means the former fixed CPU', () => {
  assert.equal(
    cpuOf({ accelerator: 'kvm', cpu: { avx2: true, family: 6, vendor: 'GenuineIntel' } }),
    'base,enforce=on,avx2=on,family=6,vendor=GenuineIntel',
  );
  assert.equal(cpuOf({ accelerator: 'tcg', cpu: { erms: 'off' } }), 'max,erms=off');
  assert.equal(cpuOf({ accelerator: 'kvm' }), 'Westmere,+x2apic');
  assert.equal(cpuOf({ accelerator: 'tcg' }), 'max,la57=off');
});
