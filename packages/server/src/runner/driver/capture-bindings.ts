/**
 * Checks what saved state requires of the machine that continues it. If a requirement differs, the state would not load
 * or would load wrongly.
 */
import { AppError } from '@coppice/contract';
import type { Accelerators } from '../accelerator/accelerators.ts';
import type { VmRecord } from '../vm/vm-record.ts';
import type { MachineStore } from '../machine/machine-store.ts';
import type { CaptureManifest } from '../snapshot/capture-manifest.ts';
import type { CaptureFiles } from '../snapshot/capture-store.ts';
import { MACHINE_VERSION } from '../vm/shape.ts';
import type { Blueprint } from './vm-assembly.ts';

/** Two measurements of one counter differ by some parts in a million; counters of two hosts by more than this. */
const TSC_TOLERANCE_KHZ = 10_000;

export interface CaptureBindings {
  machines: MachineStore;
  accelerators: Pick<Accelerators, 'findRefusal' | 'findMissing'>;
  hasNetwork: boolean;
  /** Rate of this host's time stamp counter, kHz. */
  tscKhz: number;
}

/** Throws `snapshot_unusable`, naming what differs, if a capture cannot continue on this host. */
export function assertUsable(bindings: CaptureBindings, manifest: CaptureManifest): void {
  const { accelerators, machines, hasNetwork, tscKhz } = bindings;
  const { shape, machine_version, has_network, tsc_khz, info } = manifest;
  if (machines.find(manifest.machine) === undefined) {
    const { qemu, kernel, agent } = info.bound_to;
    throw unusable(`QEMU ${qemu}, kernel ${kernel} and agent ${agent}, which this machine does not have`);
  }
  if (machine_version !== MACHINE_VERSION)
    throw unusable(`devices of version ${machine_version}, but this service has version ${MACHINE_VERSION}`);
  const refusal = accelerators.findRefusal(shape.accelerator);
  if (refusal !== undefined) throw unusable(`the accelerator ${shape.accelerator}, and ${refusal}`);
  const missing =
    shape.accelerator === 'kvm' && shape.cpu !== undefined ? accelerators.findMissing(shape.cpu) : [];
  if (missing.length > 0) throw unfit(missing);
  if (has_network !== hasNetwork)
    throw unusable(
      has_network ? 'a network, and this machine has none for guests' : 'a machine without a network',
    );
  if (Math.abs(tsc_khz - tscKhz) > TSC_TOLERANCE_KHZ)
    throw unusable(`a time stamp counter of ${tsc_khz} kHz, but this machine's has ${tscKhz}`);
}

/** Returns the blueprint of a VM that continues from the capture. Throws `snapshot_unusable`. */
export function blueprintOfCapture(
  bindings: CaptureBindings,
  files: CaptureFiles,
  manifest: CaptureManifest,
): Blueprint {
  assertUsable(bindings, manifest);
  const { machine, image, shape, counters, slot } = manifest;
  return { machine, image, shape, counters, avoidSlot: slot, files: toSources(files) };
}

/** Returns the files of a capture. All of them are frozen; a VM that continues from them gets its own empty overlay. */
export function toSources({ directory, statePath, overlays }: CaptureFiles): Blueprint['files'] {
  const { ram: ramPath, image: imagePath, scratchBase: basePath } = directory;
  return { ramPath, statePath, wasBusy: true, imagePath, scratch: { basePath, frozen: overlays } };
}

/** Describes the machine that a capture of the VM needs, for users. */
export function describeBindings(
  { machine, shape }: Pick<VmRecord, 'machine' | 'shape'>,
  { machines }: CaptureBindings,
): Record<string, string> {
  const { accelerator, cpu } = shape;
  return {
    ...machines.find(machine)?.versions,
    machine: `microvm-${MACHINE_VERSION}`,
    accelerator,
    ...(cpu?.['model-id'] !== undefined && { cpu: String(cpu['model-id']) }),
  };
}

function unfit(missing: readonly string[]): AppError {
  const remedy =
    'restore it where they can, or give new sandboxes a CPU that all machines have (COPPICE_CPU)';
  return unusable(`a CPU with ${missing.join(', ')}, which guests of this machine cannot have: ${remedy}`);
}

function unusable(needs: string): AppError {
  return new AppError('snapshot_unusable', `the snapshot is bound to ${needs}`);
}
