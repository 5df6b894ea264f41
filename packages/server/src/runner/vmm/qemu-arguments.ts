/**
 * The command line of a VM, as pure functions. Template and restored VM must agree in machine, devices and
 * their order, or the saved device state does not load; what may differ is where the files are, whether RAM
 * is shared, and whether the VM starts or waits for a state.
 *
 *   share=on                       what is saved when it is ready: RAM *is* the file
 *   share=off,readonly=on,rom=off  sandbox: RAM is a private copy-on-write view of the template's file
 */
import type { Accelerator } from '../../lib/runner-protocol.ts';
import type { Cpu } from './cpu.ts';

/** Raise when the device model or its order changes: templates of another version are not used, captures refused. */
export const MACHINE_VERSION = 4;

/** The same in every guest: saved state carries it, and no two guests share a link. */
export const GUEST_MAC = '06:00:00:00:00:01';

/** TCG's translation cache, MiB; its default may grow to 1 GiB for each VM. */
const TCG_CACHE_MIB = 128;
/** QEMU itself: program, devices, thread stacks. */
const QEMU_MEM_MIB = 64;

/** Memory of a VM's process besides that of the guest. */
export function overheadMiB(accelerator: Accelerator): number {
  return QEMU_MEM_MIB + (accelerator === 'tcg' ? TCG_CACHE_MIB : 0);
}

export interface MachineShape {
  accelerator: Accelerator;
  /** Absent for VMs from before it was recorded. */
  cpu?: Cpu | undefined;
  vcpus: number;
  memMiB: number;
}

/** What a template is made for: the scratch disk is part of it, as it is mounted when the state is saved. */
export interface TemplateShape extends MachineShape {
  diskMiB: number;
}

export interface DiskFiles {
  /** Read-only squashfs of the image. */
  imagePath: string;
  /** Read-only ext4 file under all overlays. */
  scratchBasePath: string;
  /** Holds the overlays, `<number>.qcow2`: QEMU may open what is put there, and make nothing. */
  overlayDirectory: string;
  /** Numbers of the overlays from the lowest to the topmost, which is this VM's own; the others are frozen. */
  overlays: readonly number[];
}

export function overlayName(number: number): string {
  return `${number}.qcow2`;
}

/** QEMU's name for an overlay. */
export function overlayNode(number: number): string {
  return `disk-${number}`;
}

export interface MachineFiles {
  kernelPath: string;
  initramfsPath: string;
  ramPath: string;
  /** QEMU makes its sockets here; short, as socket paths hold 108 bytes. */
  socketDirectory: string;
  /** Absent for the accelerator probe, which boots no image. */
  disks: DiskFiles | undefined;
}

export type StartMode =
  | { kind: 'boot' }
  /** `isDeferred`: it waits to be told to load the state. `ownsRam`: what it writes goes to the RAM file. */
  | { kind: 'restore'; statePath: string; isDeferred: boolean; ownsRam: boolean };

/** Whether RAM is the file, not a private view of it. */
export function writesRam(mode: StartMode): boolean {
  return mode.kind === 'boot' || mode.ownsRam;
}

export const SOCKETS = { qmp: 'qmp', ctl: 'ctl', data: 'data' } as const;
export const CONSOLE_CHARDEV = 'console';

/** Child file descriptor at which QEMU finds its TAP. */
export const TAP_CHILD_FD = 3;
/** … and /dev/kvm, which its own uid may not open. */
export const KVM_CHILD_FD = 4;
const KVM_FD_SET = 1;

const EMULATED_WORDS = [
  'mitigations=off',
  'nokaslr',
  'init_on_alloc=0',
  'hardened_usercopy=off',
  'randomize_kstack_offset=off',
  'cryptomgr.notests',
  // Debian's list without what does nothing before it is given a policy: guests come without one.
  'lsm=landlock,yama',
];

/** `tscKhz` matters under emulation only: with KVM the guest has a clock of the host's. */
export function kernelCommandLine(accelerator: Accelerator, tscKhz?: number): string {
  const words = [
    'console=ttyS0',
    'quiet',
    'panic=-1',
    'reboot=t',
    'net.ifnames=0',
    'cgroup_no_v1=all',
    'no_timer_check',
    'tsc=reliable',
    'rcupdate.rcu_expedited=1',
    'random.trust_cpu=on',
    '8250.nr_uarts=1',
  ];
  // Under emulation there is no speculation to mitigate, and what the checks of a kernel that hardens or tests itself cost
  // is paid many times over.
  if (accelerator === 'tcg') words.push(...EMULATED_WORDS);
  if (accelerator === 'tcg' && tscKhz !== undefined) words.push(`tsc_early_khz=${tscKhz}`);
  return words.join(' ');
}

/** What all VMs had before it was recorded. */
const UNRECORDED_CPU: Readonly<Record<Accelerator, string>> = {
  kvm: 'Westmere,+x2apic',
  tcg: 'max,la57=off',
};

function cpuArgument({ accelerator, cpu }: MachineShape): string {
  if (cpu === undefined) return UNRECORDED_CPU[accelerator];
  const properties = Object.entries(cpu).map(([name, value]) => `${name}=${value === true ? 'on' : value}`);
  // QEMU ends rather than leave out a feature: a guest that has found it uses it.
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

/** A full or failing disk of the host stops the VM, the request kept, instead of telling the guest of an error. */
const ON_DISK_ERROR = 'werror=stop,rerror=stop';

/** The overlays die with their VM or are synced by whoever keeps them, so flushes to the host's disk buy nothing. */
const CACHE = { direct: false, 'no-flush': true };

/**
 * One overlay as block nodes. The backing node is named here, never read from the file's header: an escaped QEMU owns
 * that header and could make it point anywhere. Null is for an overlay that gets its backing when it is put on top.
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

/** Below all overlays. */
export const BASE_NODE = 'scratch-base';
/** Finds the scratch disk among QEMU's devices. */
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
  if (top === undefined) throw new Error('a scratch disk has at least one overlay');
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
 * A guest that powers off or resets leaves its QEMU paused: usage and console can still be read, and the
 * runner may be away at that moment. The console is a ring in QEMU's memory: a guest cannot fill a disk with it.
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
  /** Rate of the host's time stamp counter. */
  tscKhz: number;
  mode: StartMode;
}

export function buildQemuArguments(options: QemuOptions): string[] {
  const { shape, files, mode } = options;
  return [
    ['-name', options.name, '-nodefaults', '-no-user-config', '-display', 'none'],
    // The default with ACPI looks for a disk to boot from, and never gets an answer from one when RAM is 2, 4 or 8 GiB.
    ['-bios', 'qboot.rom'],
    ['-M', 'microvm,acpi=on,pit=on,pic=on,rtc=on,isa-serial=on,memory-backend=ram0,suppress-vmdesc=on'],
    ['-global', 'migration.send-configuration=off', '-global', 'virtio-mmio.force-legacy=off'],
    accelerationArguments(shape),
    memoryArguments(shape, files.ramPath, mode),
    confinementArguments(),
    portArguments(files.socketDirectory),
    files.disks === undefined ? [] : diskArguments(files.disks),
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

/** As QEMU names where a saved state is. */
export function stateUri(statePath: string): string {
  return `file:${statePath}`;
}
