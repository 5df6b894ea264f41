/**
 * Builds the QEMU command line of a VM. Template and restored VM must agree in machine, devices and device order, or
 * the saved device state does not load. Only file paths, whether RAM is shared, and whether the VM starts or waits for
 * a state may differ.
 *
 *   share=on                       a VM that will be saved: RAM *is* the file
 *   share=off,readonly=on,rom=off  sandbox: RAM is a private copy-on-write view of the template's file
 */
import type { Accelerator } from '../../lib/protocol/runner-protocol.ts';
import { kernelCommandLine } from '../vm/kernel-command-line.ts';
import { GUEST_MAC, TCG_CACHE_MIB, type MachineShape } from '../vm/shape.ts';
import { writesRam, type MachineFiles, type StartMode } from '../confinement/vm-layout.ts';
import { overlayName, type DiskFiles } from '../vm/vm-files.ts';
import { invariant } from '../../lib/invariant.ts';
import { buildEmptyNode, CLUSTER_BYTES, EMPTY_NODE, WORKSPACE_DEVICE } from './workspace-nodes.ts';

/** Names of the Unix sockets in the socket directory. */
export const SOCKETS = { qmp: 'qmp', ctl: 'ctl', data: 'data' } as const;

/** QEMU's node name of an overlay. */
export function overlayNode(number: number): string {
  return `disk-${number}`;
}

export const CONSOLE_CHARDEV = 'console';

/** QEMU's file descriptor of its TAP. */
export const TAP_CHILD_FD = 3;
/** QEMU's file descriptor of /dev/kvm, which its own uid may not open. */
export const KVM_CHILD_FD = 4;
const KVM_FD_SET = 1;

/** The CPU of all VMs from before the CPU was recorded. */
const UNRECORDED_CPU: Readonly<Record<Accelerator, string>> = {
  kvm: 'Westmere,+x2apic',
  tcg: 'max,la57=off',
};

function cpuArgument({ accelerator, cpu }: MachineShape): string {
  if (cpu === undefined) return UNRECORDED_CPU[accelerator];
  const properties = Object.entries(cpu).map(([name, value]) => `${name}=${value === true ? 'on' : value}`);
  // `enforce=on`: QEMU exits instead of omitting a feature, because a restored guest may already use it.
  const model = accelerator === 'kvm' ? ['base', 'enforce=on'] : ['max'];
  return [...model, ...properties].join(',');
}

function accelerationArguments(shape: MachineShape): string[] {
  const processor = ['-cpu', cpuArgument(shape), '-smp', String(shape.vcpus)];
  if (shape.accelerator === 'kvm') {
    const descriptor = ['-add-fd', `fd=${KVM_CHILD_FD},set=${KVM_FD_SET}`];
    return [...descriptor, '-accel', `kvm,device=/dev/fdset/${KVM_FD_SET}`, ...processor];
  }
  const threads = shape.vcpus > 1 ? 'multi' : 'single';
  return ['-accel', `tcg,tb-size=${TCG_CACHE_MIB},thread=${threads}`, ...processor];
}

function memoryArguments(shape: MachineShape, ramPath: string, mode: StartMode): string[] {
  const mapping = writesRam(mode) ? 'share=on' : 'share=off,readonly=on,rom=off';
  return [
    '-m',
    `${shape.memMiB}M`,
    '-object',
    `memory-backend-file,id=ram0,size=${shape.memMiB}M,mem-path=${ramPath},${mapping}`,
  ];
}

/** If a host disk is full or fails, QEMU stops the VM and keeps the request; the guest sees no error. */
const ON_DISK_ERROR = 'werror=stop,rerror=stop';

/**
 * Overlays are deleted with their VM, or synced by the code that keeps them: flushes to the host's disk are useless.
 */
const CACHE = { direct: false, 'no-flush': true };

/**
 * Block nodes of one overlay. The runner names the backing node and never reads it from the file's header: an escaped
 * QEMU owns that header and could make it point anywhere. Null: the overlay gets its backing when it is put on top.
 */
export function overlayNodes(
  number: number,
  { path, backing, isFrozen }: { path: string; backing: string | null; isFrozen: boolean },
): Record<string, unknown>[] {
  const node = overlayNode(number);
  const access = isFrozen ? { 'read-only': true } : { discard: 'unmap', cache: CACHE };
  return [
    { driver: 'file', filename: path, 'node-name': `${node}-file`, locking: 'off', ...access },
    { driver: 'qcow2', file: `${node}-file`, 'node-name': node, backing, ...access },
  ];
}

/** Node name of the base below all overlays. */
export const BASE_NODE = 'scratch-base';
/** QEMU's device id of the scratch disk. */
export const SCRATCH_DEVICE = 'scratch-disk';

function readOnlyNodes(node: string, path: string): Record<string, unknown>[] {
  const access = { 'read-only': true, locking: 'off' };
  return [
    { driver: 'file', filename: path, 'node-name': `${node}-file`, ...access },
    { driver: 'raw', file: `${node}-file`, 'node-name': node, 'read-only': true },
  ];
}

function diskArguments({ imagePath, scratchBasePath, overlayDirectory, overlays }: DiskFiles): string[] {
  const top = overlays.at(-1);
  invariant(top !== undefined, 'a scratch disk has at least one overlay');
  const chain = overlays.flatMap((number, index) => {
    const below = overlays[index - 1];
    return overlayNodes(number, {
      path: `${overlayDirectory}/${overlayName(number)}`,
      backing: below === undefined ? BASE_NODE : overlayNode(below),
      isFrozen: number !== top,
    });
  });
  const nodes = [
    ...readOnlyNodes('image', imagePath),
    ...readOnlyNodes(BASE_NODE, scratchBasePath),
    ...chain,
  ];
  const scratch = `drive=${overlayNode(top)},id=${SCRATCH_DEVICE},serial=scratch`;
  return [
    nodes.flatMap((node) => ['-blockdev', JSON.stringify(node)]),
    ['-device', `virtio-blk-device,drive=image,serial=image,${ON_DISK_ERROR}`],
    ['-device', `virtio-blk-device,${scratch},${ON_DISK_ERROR}`],
  ].flat();
}

/** The device of the persistent disk, empty. All VMs have it, after the scratch disk. */
function workspaceArguments(): string[] {
  // The guest then trims whole clusters of the overlay.
  const properties = `id=${WORKSPACE_DEVICE},serial=workspace,discard_granularity=${CLUSTER_BYTES}`;
  return [
    '-blockdev',
    JSON.stringify(buildEmptyNode()),
    '-device',
    `virtio-blk-device,drive=${EMPTY_NODE},${properties},${ON_DISK_ERROR}`,
  ];
}

function portArguments(socketDirectory: string): string[] {
  const port = (name: string, socket: string) => [
    '-chardev',
    `socket,id=${socket},path=${socketDirectory}/${socket},server=on,wait=off`,
    '-device',
    `virtserialport,chardev=${socket},name=${name}`,
  ];
  return [
    '-device',
    'virtio-serial-device',
    ...port('coppice.ctl', SOCKETS.ctl),
    ...port('coppice.data', SOCKETS.data),
    '-qmp',
    `unix:${socketDirectory}/${SOCKETS.qmp},server=on,wait=off`,
  ];
}

function networkArguments(): string[] {
  return [
    '-netdev',
    `tap,id=net0,fd=${TAP_CHILD_FD},vhost=off`,
    '-device',
    `virtio-net-device,netdev=net0,mac=${GUEST_MAC}`,
  ];
}

/**
 * A guest that powers off or resets leaves its QEMU paused: the runner can still read usage and console, even if it is
 * not running at that moment. The console is a ring buffer in QEMU's memory, so a guest cannot fill a disk with it.
 */
function confinementArguments(): string[] {
  return [
    ['-chardev', `ringbuf,id=${CONSOLE_CHARDEV},size=65536`, '-serial', `chardev:${CONSOLE_CHARDEV}`],
    ['-action', 'reboot=shutdown,shutdown=pause,panic=pause'],
    ['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
  ].flat();
}

export interface QemuOptions {
  name: string;
  shape: MachineShape;
  files: MachineFiles;
  network: boolean;
  /** Rate of the host's time stamp counter, kHz. */
  tscKhz: number;
  mode: StartMode;
}

export function buildQemuArguments(options: QemuOptions): string[] {
  const { shape, files, mode } = options;
  return [
    ['-name', options.name, '-nodefaults', '-no-user-config', '-display', 'none'],
    // With ACPI the default BIOS looks for a boot disk, and gets no answer from one if RAM is 2, 4 or 8 GiB.
    ['-bios', 'qboot.rom'],
    ['-M', 'microvm,acpi=on,pit=on,pic=on,rtc=on,isa-serial=on,memory-backend=ram0,suppress-vmdesc=on'],
    ['-global', 'migration.send-configuration=off', '-global', 'virtio-mmio.force-legacy=off'],
    accelerationArguments(shape),
    memoryArguments(shape, files.ramPath, mode),
    confinementArguments(),
    portArguments(files.socketDirectory),
    files.disks === undefined ? [] : diskArguments(files.disks),
    files.workspace === undefined ? [] : workspaceArguments(),
    options.network ? networkArguments() : [],
    [
      '-kernel',
      files.kernelPath,
      '-initrd',
      files.initramfsPath,
      '-append',
      kernelCommandLine(shape.accelerator, options.tscKhz),
    ],
    mode.kind === 'restore' ? ['-S', '-incoming', mode.isDeferred ? 'defer' : stateUri(mode.statePath)] : [],
  ].flat();
}

/** QEMU's migration URI of a saved state. */
export function stateUri(statePath: string): string {
  return `file:${statePath}`;
}
