/**
 * Finds out whether KVM works by booting a kernel with it. That /dev/kvm opens, and even that a VM and a vCPU can be
 * created, proves nothing: on some hosts the guest then hangs.
 */
import { closeSync, openSync } from 'node:fs';
import { DeadlineError } from '../../lib/waiting/deadline.ts';
import { VmmError } from '../vm/vmm.ts';
import { BootEndedError } from './boot-once.ts';
import { UnfitCpuError, type KvmCpus } from './boot-with-kvm.ts';

const DEVICE = '/dev/kvm';
const MAX_REASON_LENGTH = 200;

/**
 * The result of one probe:
 *
 *   works       a kernel booted
 *   absent      a boot would be useless: the device does not exist or may not be opened
 *   refused     the VMM or the guest ended, with a reason
 *   unfit       guests cannot have the configured CPU
 *   unanswered  no result: a slow host looks like a host whose KVM hangs
 */
export type KvmFinding =
  | { outcome: 'works'; cpus: KvmCpus }
  | { outcome: 'absent' | 'refused' | 'unfit' | 'unanswered'; reason: string };

export interface KvmProbe {
  /** Returns why a boot would be useless, or undefined if only a boot can tell. Returns immediately. */
  findObstacle: () => string | undefined;
  /** Boots a kernel with KVM; rejects when that fails. */
  boot: (timeoutMs: number, signal?: AbortSignal) => Promise<KvmCpus>;
}

/** Probes KVM once. Rejects only when `signal` is aborted. */
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

/** Only an end of the VM says something about KVM. Any other error, such as a full disk, leaves the question open. */
function judge(error: unknown): KvmFinding {
  if (error instanceof UnfitCpuError) return { outcome: 'unfit', reason: error.message };
  const ended = [BootEndedError, VmmError].some((kind) => error instanceof kind);
  const isLate = error instanceof Error && error.cause instanceof DeadlineError;
  if (ended && !isLate)
    return { outcome: 'refused', reason: `${DEVICE} is there, but no kernel boots with it: ${say(error)}` };
  return { outcome: 'unanswered', reason: `KVM has not been shown to work: ${say(error)}` };
}

/** The VMM may print warnings before the error: they are skipped. */
function say(error: unknown): string {
  const lines = (error instanceof Error ? error.message : String(error)).split('\n');
  const line = lines.find((each) => !each.includes('warning:')) ?? lines[0] ?? '';
  return line.slice(0, MAX_REASON_LENGTH);
}

const REMEDIES: Readonly<Record<string, string>> = {
  EACCES: 'add the user that the service runs as to the group that owns it',
  // A systemd device policy covers only devices that exist when the unit starts.
  EPERM: 'restart the service, or allow it the device',
};

/** Implements {@link KvmProbe.findObstacle}. */
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
