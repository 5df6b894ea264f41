import type { AcceleratorMode } from './accelerator/accelerators.ts';
import type { SetRanges } from './host-ranges/host-ranges.ts';
import type { NetworkMode } from './network/open-network.ts';
import type { CpuSetting } from '../lib/cpu-setting.ts';

/** Paths of the programs and files that the runner starts VMs with. */
export interface RunnerTools {
  /** Launcher that becomes QEMU. */
  jail: string;
  /** Program that writes the memory of VMs to files. */
  capture: string;
  /** Program that asks the kernel for the runner. */
  hostctl: string;
  /** Server of persistent disks. */
  blocks: string;
  qemu: string;
  kernel: string;
  initramfs: string;
  tar2sqfs: string;
  nft: string;
  ip: string;
  mke2fs: string;
}

/** The configuration of the runner; made by config.ts, the only reader of the environment. */
export interface RunnerConfig {
  /** Directory on a disk file system for images, templates, scratch disks and events. */
  dataDir: string;
  /** Directory with a short path for sockets; a reboot empties it. */
  runDir: string;
  socketPath: string;
  /** Where it also listens on the network, for controls of the installation that it has joined. */
  listen?: { host: string; port: number };
  /** Four hex digits that distinguish several installations on one host (TAP names, nft table). */
  slug: string;
  /** Data directory of the whole installation. */
  installationDir: string;
  /** Addresses of guests and user ids of VMs, where the operator set them. */
  ranges: SetRanges;
  /** Directory that lists the installations of this machine. */
  installationsDir: string;
  /** Whether VMs need KVM, may use it, or never use it. */
  accelerator: AcceleratorMode;
  /** CPU model of new VMs under KVM. */
  cpu: CpuSetting;
  /** Whether guests get a network. */
  network: NetworkMode;
  openPrivateRanges: readonly string[];
  /** Resolvers for the guests' DNS queries; empty for the host's own resolvers. */
  resolvers: readonly string[];
  /** Largest number of warm VMs in total; 0 keeps none. */
  warmPoolLimit: number;
  /** Overcommit factors: VMs may reserve this many times the host's memory and its cores. */
  memOvercommit: number;
  cpuOvercommit: number;
  /** When the data directory has less free space than this, the runner makes nothing new. */
  diskReserveMiB: number;
  /** Largest total size of images and the templates made from them; 0 is no limit. */
  imageCacheMiB: number;
  /** Setting of the object store, in which persistent disks are. */
  objectStore: string;
  /** Variables with the credentials of the object store. */
  storeVariables?: Readonly<Record<string, string>>;
  /** Most data of one persistent disk that waits on this host for the object store. */
  diskBacklogMiB: number;
  /** Size of the local cache of persistent disks in an S3 store; 0 keeps none. */
  diskCacheMiB: number;
  registryMirrors: Readonly<Record<string, string>>;
  insecureRegistries: readonly string[];
  /** Directory of images imported with `coppice admin image import`. */
  localImagesDir: string;
  builtinImages: readonly { reference: string; layoutPath: string }[];
  tools: RunnerTools;
}
