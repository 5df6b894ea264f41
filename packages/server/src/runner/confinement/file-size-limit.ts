/**
 * The limit on the size of a VM's files (RLIMIT_FSIZE). It keeps an escaped QEMU from filling the host's disk with one
 * file. The launcher ignores its signal: a write beyond it fails, and QEMU stops the guest.
 *
 * A VM gets a persistent disk while it runs, and its limit grows then: up to the hard limit, which is that of the
 * largest disk, and not by QEMU itself, which the launcher's filter refuses it.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { stretched } from '../../lib/waiting/deadline.ts';
import { VmmError, VmGoneError } from '../vm/vmm.ts';

const MIB = 1024 * 1024;
/** Part of util-linux, so on every system. */
const PRLIMIT_PATH = '/usr/bin/prlimit';
const TIMEOUT_MS = 10_000;
/** qcow2 tables add a few parts in ten thousand to the data. */
const DISK_FORMAT_SHARE = 1.01;
const LARGEST_DISK_BYTES = 2 ** 44;
/** In /proc: the limit, bytes or "unlimited". */
const SOFT_LIMIT = /^Max file size +(\w+)/mu;
const IDENTITY = /^Uid:\t(\d+)[^]*^Gid:\t(\d+)/mu;

/** Returns the limit for a VM whose largest file holds a disk of this size, or something else of `otherBytes`. */
export function fileSizeFor(diskBytes: number, otherBytes = 0): number {
  return Math.max(otherBytes, Math.ceil(diskBytes * DISK_FORMAT_SHARE)) + 64 * MIB;
}

export const LARGEST_FILE_BYTES = fileSizeFor(LARGEST_DISK_BYTES);

/** Raises the limit of a VM's process if it is lower. */
export async function raiseFileSize(pid: number, bytes: number): Promise<void> {
  const soft = SOFT_LIMIT.exec(readProcess(pid, 'limits'))?.[1];
  if (soft === 'unlimited' || Number(soft) >= bytes) return;
  const [, uid, gid] = IDENTITY.exec(readProcess(pid, 'status')) ?? [];
  // As the VM's user: root without CAP_SYS_RESOURCE, as in many containers, may not change the limits of other users.
  const identity = process.getuid?.() === 0 ? { uid: Number(uid), gid: Number(gid) } : {};
  try {
    await promisify(execFile)(PRLIMIT_PATH, [`--pid=${pid}`, `--fsize=${bytes}:`], {
      ...identity,
      cwd: '/',
      env: {},
      timeout: stretched(TIMEOUT_MS),
    });
  } catch (error) {
    throw new VmmError('the VM cannot write files of the size of its disk', { cause: error });
  }
}

function readProcess(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8');
  } catch (error) {
    throw Object.assign(new VmGoneError(), { cause: error });
  }
}
