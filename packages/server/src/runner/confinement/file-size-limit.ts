/**
 * The limit on the size of a VM's files (RLIMIT_FSIZE). It keeps an escaped QEMU from filling the host's disk with one
 * file. QEMU ignores the signal of the limit: a write beyond it fails, and QEMU stops the guest.
 *
 * A VM gets a persistent disk while it runs, and its limit grows then. That takes CAP_SYS_RESOURCE in the host's user
 * namespace. A service without it starts VMs with the limit of the largest disk.
 */
import { readFileSync } from 'node:fs';
import { runCommand } from '../../lib/process/run-command.ts';

const MIB = 1024 * 1024;
/** Part of util-linux, so on every system. */
const PRLIMIT_PATH = '/usr/bin/prlimit';
/** qcow2 tables add a few parts in ten thousand to the data. */
const DISK_FORMAT_SHARE = 1.01;
const LARGEST_DISK_BYTES = 2 ** 44;
/** The limit in /proc, bytes or "unlimited", and the hard limit. */
const LINE = /^Max file size +(\w+) +(\w+)/mu;

/** Returns the limit for a VM whose largest file holds a disk of this size, or something else of `otherBytes`. */
export function fileSizeFor(diskBytes: number, otherBytes = 0): number {
  return Math.max(otherBytes, Math.ceil(diskBytes * DISK_FORMAT_SHARE)) + 64 * MIB;
}

export const LARGEST_FILE_BYTES = fileSizeFor(LARGEST_DISK_BYTES);

/** Whether this process may raise the limits of others. Finds out by raising one. */
export async function canRaiseLimits(): Promise<boolean> {
  const raised = [`--fsize=${2 * MIB}:${2 * MIB}`, '/bin/true'];
  try {
    await runCommand(PRLIMIT_PATH, [`--fsize=${MIB}:${MIB}`, PRLIMIT_PATH, ...raised]);
    return true;
  } catch {
    return false;
  }
}

/** Raises the limit of a process if it is lower. */
export async function raiseFileSize(pid: number, bytes: number): Promise<void> {
  const [, soft] = LINE.exec(readFileSync(`/proc/${pid}/limits`, 'utf8')) ?? [];
  if (soft === 'unlimited' || Number(soft) >= bytes) return;
  await runCommand(PRLIMIT_PATH, [`--pid=${pid}`, `--fsize=${bytes}:${bytes}`]);
}
