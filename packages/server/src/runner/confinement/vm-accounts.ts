/**
 * Who VMs run as. Started by root, each VM gets a user id of its own that follows from its slot; started by an ordinary
 * user, all VMs run as that user, since nobody else can be become.
 */
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { AppError } from '@coppice/contract';
import { findSocketDirectory } from './jailed-process.ts';
import { BARE_SLOTS, TAP_SLOTS } from '../network/vm-network.ts';
import { listProcessesOfUids, type ProcessIdentity } from '../host/host-process.ts';

/** Uids before those of the VMs: the probe's and the template's. */
const SERVICE_UIDS = 2;
/** In a row: the service's, one for each slot, and that of the egress process. */
export const UIDS_OF_INSTALLATION = SERVICE_UIDS + TAP_SLOTS + BARE_SLOTS + 1;

export interface VmAccounts {
  /** Of the VM that shows whether an accelerator works. */
  readonly probe: number;
  /** Of the VM that becomes a template; one is made at a time. */
  readonly template: number;
  /** Of the egress process: it reads what guests send, and shares its account with nobody. */
  readonly egress: number;
  /** Throws `capacity` when there are no more. */
  ofSlot(index: number): number;
  /** VMMs of this runner, or one before it, that work in `directory`. */
  listVmms(directory: string, uid: number): ProcessIdentity[];
  /** All VMMs of this runner and those before it. */
  listAllVmms(): ProcessIdentity[];
}

/** A uid for each slot from `base` on, after those of probe and template; behind them that of the egress process. */
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

  get egress(): number {
    return this.#last + 1;
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
    return this.#base + UIDS_OF_INSTALLATION - 2;
  }
}

/** Everything runs as one user, who runs other things too: only a QEMU that works in our directories is ours. */
export class SharedAccount implements VmAccounts {
  readonly #uid: number;
  readonly #directories: readonly string[];

  /** `directories` are those in which VMMs have their sockets. */
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

  get egress(): number {
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

/** In the directory itself or in one below it. Of a jailed one only the end of its path is known. */
function worksIn(pid: number, directory: string): boolean {
  const path = findSocketDirectory(pid);
  if (path === undefined) return false;
  return directory.endsWith(path) || join(directory, basename(path)).endsWith(path);
}

/** Where QEMU is not jailed its dynamic linker is started, and then called so until QEMU has read its options. */
const QEMU_NAME = /^(?:qemu-system|ld-)/u;

function isQemu(pid: number): boolean {
  try {
    return QEMU_NAME.test(readFileSync(`/proc/${pid}/comm`, 'utf8'));
  } catch {
    return false;
  }
}
