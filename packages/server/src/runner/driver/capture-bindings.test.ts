import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import type { CaptureManifest } from '../snapshot/capture-manifest.ts';
import type { Machine, MachineStore } from '../machine/machine-store.ts';
import { MACHINE_VERSION } from '../vm/shape.ts';
import { assertUsable, describeBindings, type CaptureBindings } from './capture-bindings.ts';

const MACHINE = { key: 'm1', versions: { qemu: '10.0.2' } } as unknown as Machine;
const machines = { find: (key: string) => (key === 'm1' ? MACHINE : undefined) } as unknown as MachineStore;

const CPU = { vendor: 'GenuineIntel', 'model-id': 'x86-64-v3', avx2: true } as const;

function bindings(refusal?: string, missing: string[] = []): CaptureBindings {
  const accelerators = { findRefusal: () => refusal, findMissing: () => missing };
  return { machines, accelerators, hasNetwork: true, tscKhz: 2_000_000 };
}

function manifest(more: Partial<CaptureManifest> = {}): CaptureManifest {
  return {
    machine: 'm1',
    machine_version: MACHINE_VERSION,
    shape: { accelerator: 'kvm', vcpus: 1, memMiB: 256, diskMiB: 64 },
    has_network: true,
    tsc_khz: 2_000_000,
    info: { bound_to: { qemu: '9.0', kernel: '6.1', agent: 'a1' } },
    ...more,
  } as CaptureManifest;
}

const isUnusable = (message: string) => (error: unknown) =>
  error instanceof AppError && error.code === 'snapshot_unusable' && error.message === message;

test('a capture continues with the machine that it was saved with', () => {
  assertUsable(bindings(), manifest());
});

test('a capture of an unusable accelerator is refused, with the accelerator and the reason', () => {
  assert.throws(
    () => assertUsable(bindings('this machine uses tcg: there is no /dev/kvm on this host'), manifest()),
    isUnusable(
      'the snapshot is bound to the accelerator kvm, and this machine uses tcg: there is no /dev/kvm on this host',
    ),
  );
});

test('a capture of an unsupported CPU is refused, with the missing features and the remedy', () => {
  const shape = { ...manifest().shape, cpu: CPU };
  assertUsable(bindings(), manifest({ shape }));
  assert.throws(
    () => assertUsable(bindings(undefined, ['avx2', 'fma']), manifest({ shape })),
    isUnusable(
      'the snapshot is bound to a CPU with avx2, fma, which guests of this machine cannot have: ' +
        'restore it where they can, or give new sandboxes a CPU that all machines have (COPPICE_CPU)',
    ),
  );
});

test('a capture without a recorded CPU is accepted, whatever CPU guests here can have', () => {
  assertUsable(bindings(undefined, ['avx2']), manifest());
});

test('every other difference is named', () => {
  const differing: [Partial<CaptureManifest>, RegExp][] = [
    [{ machine: 'gone' }, /QEMU 9\.0, kernel 6\.1 and agent a1/u],
    [{ machine_version: MACHINE_VERSION + 1 }, /devices of version/u],
    [{ has_network: false }, /a machine without a network/u],
    [{ tsc_khz: 2_500_000 }, /a time stamp counter of 2500000 kHz/u],
  ];
  for (const [more, message] of differing)
    assert.throws(() => assertUsable(bindings(), manifest(more)), message);
});

test('a capture is described by the accelerator of its VM, not by that of new VMs', () => {
  const { shape } = manifest();
  const vm = { machine: 'm1', shape: { ...shape, accelerator: 'tcg' as const } };
  assert.deepEqual(describeBindings(vm, bindings()), {
    qemu: '10.0.2',
    machine: `microvm-${MACHINE_VERSION}`,
    accelerator: 'tcg',
  });
});

test('a capture names the CPU of its VM', () => {
  const vm = { machine: 'm1', shape: { ...manifest().shape, cpu: CPU } };
  assert.equal(describeBindings(vm, bindings())['cpu'], 'x86-64-v3');
});
