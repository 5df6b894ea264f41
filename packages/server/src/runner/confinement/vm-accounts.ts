/**
 * The user ids of VMs. If root starts the runner, each VM gets its own uid, which follows from its slot. If an ordinary
 * user starts it, all VMs run as that user, who cannot switch to another.
 */
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { AppError } from '@coppice/contract';
import { findSocketDirectory } from './jailed-process.ts';
import { BARE_SLOTS, TAP_SLOTS } from '../network/vm-network.ts';
import { listProcessesOfUids, type ProcessIdentity } from '../host/host-process.ts';

/** Number of uids before those of the VMs: the probe's and the template's. */
const SERVICE_UIDS = 2;
/** Uids of preparations of images: as many as run at once. */
const IMAGE_UIDS = 2;
/** Uids of the egress process and of the block server. */
const HELPER_UIDS = 2;
/** Number of consecutive uids: the service's, one per slot, those of preparations, and those of its helpers. */
export const UIDS_OF_INSTALLATION = SERVICE_UIDS + TAP_SLOTS + BARE_SLOTS + IMAGE_UIDS + HELPER_UIDS;

export interface VmAccounts {
  /** User id of the VM that probes an accelerator. */
  readonly probe: number;
  /** User id of the VM that becomes a template; one is built at a time. */
  readonly template: number;
  /** User ids of preparations of images, which unpack hostile archives; empty if all run as the service's user. */
  readonly images: readonly number[];
  /** User id of the egress process. It reads bytes from guests, so no other process has the same uid. */
  readonly egress: number;
  /** User id of the block server, which has the credentials of the object store. */
  readonly blocks: number;
  /** User id of a slot. Throws `capacity` if the slot is beyond the last uid. */
  ofSlot(index: number): number;
  /** Lists the VMMs of this runner and of earlier ones whose working directory is `directory`. */
  listVmms(directory: string, uid: number): ProcessIdentity[];
  /** Lists all VMMs of this runner and of earlier ones. */
  listAllVmms(): ProcessIdentity[];
}

/**
 * Assigns uids from `base` on: first the probe's, then the template's, the slots', those of preparations, and last the
 * egress process's and the block server's.
 */
export class SeparateAccounts implements VmAccounts {
  readonly #base: number;

  constructor(base: number) {
    this.#base = base;
  }

  get probe(): number {
    return this.#base;
  }

  get template(): number {
    return this.#base + 1;
  }

  get images(): readonly number[] {
    return Array.from({ length: IMAGE_UIDS }, (_, index) => this.#last + 1 + index);
  }

  get egress(): number {
    return this.#last + IMAGE_UIDS + 1;
  }

  get blocks(): number {
    return this.#last + IMAGE_UIDS + 2;
  }

  ofSlot(index: number): number {
    const uid = this.#base + SERVICE_UIDS + index;
    if (uid > this.#last)
      throw new AppError('capacity', 'this machine runs as many sandboxes as it has user ids for');
    return uid;
  }

  listVmms(_directory: string, uid: number): ProcessIdentity[] {
    return listProcessesOfUids(uid, uid);
  }

  listAllVmms(): ProcessIdentity[] {
    return listProcessesOfUids(this.#base, this.#last);
  }

  get #last(): number {
    return this.#base + UIDS_OF_INSTALLATION - IMAGE_UIDS - HELPER_UIDS - 1;
  }
}

/** All VMs run as one user, who runs other programs too: only a QEMU in our directories is the runner's. */
export class SharedAccount implements VmAccounts {
  readonly #uid: number;
  readonly #directories: readonly string[];

  /** `directories` hold the socket directories of VMMs. */
  constructor(uid: number, directories: readonly string[]) {
    this.#uid = uid;
    this.#directories = directories;
  }

  get probe(): number {
    return this.#uid;
  }

  get template(): number {
    return this.#uid;
  }

  get images(): readonly number[] {
    return [];
  }

  get egress(): number {
    return this.#uid;
  }

  get blocks(): number {
    return this.#uid;
  }

  ofSlot(): number {
    return this.#uid;
  }

  listVmms(directory: string): ProcessIdentity[] {
    return this.#list([directory]);
  }

  listAllVmms(): ProcessIdentity[] {
    return this.#list(this.#directories);
  }

  #list(directories: readonly string[]): ProcessIdentity[] {
    return listProcessesOfUids(this.#uid, this.#uid).filter(
      ({ pid }) => isQemu(pid) && directories.some((directory) => worksIn(pid, directory)),
    );
  }
}

/**
 * Whether the process works in the directory or just below it. Of a jailed process only the end of its path is known.
 */
function worksIn(pid: number, directory: string): boolean {
  const path = findSocketDirectory(pid);
  if (path === undefined) return false;
  return directory.endsWith(path) || join(directory, basename(path)).endsWith(path);
}

/** Without a jail QEMU is started by its dynamic linker, and has the linker's name until it has read its options. */
const QEMU_NAME = /^(?:qemu-system|ld-)/u;

function isQemu(pid: number): boolean {
  try {
    return QEMU_NAME.test(readFileSync(`/proc/${pid}/comm`, 'utf8'));
  } catch {
    return false;
  }
}
