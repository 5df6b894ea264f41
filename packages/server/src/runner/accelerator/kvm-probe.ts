/**
 * Whether KVM works here, found by booting a kernel with it. /dev/kvm opening, and even VM and vCPU creation
 * succeeding, prove nothing: on some hosts the guest then hangs.
 */
import { closeSync, openSync } from 'node:fs';
import { DeadlineError } from '../../lib/waiting/deadline.ts';
import { VmmStartError } from '../vm/vmm.ts';
import { QmpError } from '../qemu/qmp-client.ts';
import { BootEndedError } from './boot-once.ts';
import { UnfitCpuError, type KvmCpus } from './boot-with-kvm.ts';

const DEVICE = '/dev/kvm';
const MAX_REASON_LENGTH = 200;

/**
 * What one look has shown:
 *
 *   works       a kernel booted
 *   absent      no boot is of use: there is no device, or it may not be opened
 *   refused     QEMU, or the guest, ended and said why
 *   unfit       guests cannot have the CPU that is set
 *   unanswered  nothing: a host that is slow looks like one whose KVM hangs
 */
export type KvmFinding =
  | { outcome: 'works'; cpus: KvmCpus }
  | { outcome: 'absent' | 'refused' | 'unfit' | 'unanswered'; reason: string };

export interface KvmProbe {
  /** Why a boot is of no use; undefined when a boot has to show. Takes no time. */
  findObstacle: () => string | undefined;
  /** Boots a kernel with KVM; rejects when that fails. */
  boot: (timeoutMs: number, signal?: AbortSignal) => Promise<KvmCpus>;
}

/** Rejects only if it was aborted. */
export async function tryKvm(
  { findObstacle, boot }: KvmProbe,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<KvmFinding> {
  const obstacle = findObstacle();
  if (obstacle !== undefined) return { outcome: 'absent', reason: obstacle };
  try {
    return { outcome: 'works', cpus: await boot(timeoutMs, signal) };
  } catch (error) {
    signal?.throwIfAborted();
    return judge(error);
  }
}

/** Only an end of the VM says something of KVM. All else, such as a full disk, leaves it open. */
function judge(error: unknown): KvmFinding {
  if (error instanceof UnfitCpuError) return { outcome: 'unfit', reason: error.message };
  const ended = [BootEndedError, VmmStartError, QmpError].some((kind) => error instanceof kind);
  const isLate = error instanceof Error && error.cause instanceof DeadlineError;
  if (ended && !isLate)
    return { outcome: 'refused', reason: `${DEVICE} is there, but no kernel boots with it: ${say(error)}` };
  return { outcome: 'unanswered', reason: `KVM has not been shown to work: ${say(error)}` };
}

/** Before it gives up QEMU may have warned of this and that. */
function say(error: unknown): string {
  const lines = (error instanceof Error ? error.message : String(error)).split('\n');
  const line = lines.find((each) => !each.includes('warning:')) ?? lines[0] ?? '';
  return line.slice(0, MAX_REASON_LENGTH);
}

const REMEDIES: Readonly<Record<string, string>> = {
  EACCES: 'add the user that the service runs as to the group that owns it',
  // A device policy of systemd names devices that are there when the unit starts.
  EPERM: 'restart the service, or allow it the device',
};

/** For {@link KvmProbe.findObstacle}. */
export function findKvmObstacle(device = DEVICE): string | undefined {
  try {
    closeSync(openSync(device, 'r+'));
    return undefined;
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return `there is no ${device} on this host`;
    const remedy = REMEDIES[code];
    return `${device} cannot be opened (${code})${remedy === undefined ? '' : `: ${remedy}`}`;
  }
}
