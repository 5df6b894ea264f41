/** Resolves sandboxes whose VM the runner does not have. Call these functions only while holding the commit lock. */
import { findTransition } from '@coppice/contract';
import { readEndReason } from '../record/ending.ts';
import { buildHibernated, buildHibernatedNotes } from '../record/hibernation.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import type { SandboxVm } from './sandbox-vm.ts';

const LOST = { event: 'lost', reason: 'vm_lost' } as const;

/**
 * Commits the outcome: the sandbox is hibernated, or the runner has an end that control does not have, else it is lost.
 */
export async function resolveMissing(live: LiveSandbox, vm: SandboxVm): Promise<void> {
  if (live.isFinal || (await resolveHibernated(live, vm))) return;
  const end = await vm.remove();
  const { event, reason } = end === undefined ? LOST : readEndReason(end);
  await live.end(event, reason, end);
}

/** Returns true if it is hibernated, by its record or because the requested capture exists, which is then committed. */
export async function resolveHibernated(live: LiveSandbox, vm: SandboxVm): Promise<boolean> {
  const { status, hibernation_id } = live.row;
  if (status === 'hibernated') return true;
  if (hibernation_id === null || findTransition(status, 'saved').outcome !== 'accept') return false;
  const capture = await vm.findHibernation(hibernation_id);
  if (capture === undefined) return false;
  await live.commit(buildHibernated(live.row, capture, live.now), buildHibernatedNotes(live.row, capture));
  return true;
}
