import type { AcceleratorMode } from './accelerator/accelerators.ts';
import type { SetRanges } from './host-ranges/host-ranges.ts';
import type { NetworkMode } from './network/open-network.ts';
import type { CpuSetting } from '../lib/cpu-setting.ts';

/** What the runner has to know; made by config.ts, the only reader of the environment. */
export interface RunnerTools {
  /** Launcher that becomes QEMU. */
  jail: string;
  /** Program that writes the memory of VMs to files. */
  capture: string;
  qemu: string;
  kernel: string;
  initramfs: string;
  tar2sqfs: string;
  nft: string;
  ip: string;
  mke2fs: string;
}

export interface RunnerConfig {
  /** On a disk file system: images, templates, scratch disks, events. */
  dataDir: string;
  /** Short path for sockets, gone after a reboot. */
  runDir: string;
  socketPath: string;
  /** Four hex digits that tell several installations on one host apart (TAP names, nft table). */
  slug: string;
  /** Data directory of the whole installation. */
  installationDir: string;
  /** Addresses of guests and user ids of VMs, as far as they are set. */
  ranges: SetRanges;
  /** Where the installations of this machine are listed. */
  installationsDir: string;
  /** Whether VMs need KVM, may use it, or never do. */
  accelerator: AcceleratorMode;
  /** Of new VMs under KVM. */
  cpu: CpuSetting;
  /** Whether guests get a network. */
  network: NetworkMode;
  openPrivateRanges: readonly string[];
  /** Where guests' DNS questions go; empty for the host's own resolvers. */
  resolvers: readonly string[];
  /** VMs kept warm in all; 0 keeps none. */
  warmPoolLimit: number;
  /** How many times over the host's memory, and its cores, may be promised to VMs. */
  memOvercommit: number;
  cpuOvercommit: number;
  /** Free space of the data directory below which nothing new is made. */
  diskReserveMiB: number;
  /** Of images and the templates made from them; 0 is no limit. */
  imageCacheMiB: number;
  registryMirrors: Readonly<Record<string, string>>;
  insecureRegistries: readonly string[];
  /** Of images imported with `coppice image import`. */
  localImagesDir: string;
  builtinImages: readonly { reference: string; layoutPath: string }[];
  tools: RunnerTools;
}
