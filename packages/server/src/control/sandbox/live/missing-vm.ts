/** What has become of a sandbox whose VM the runner does not have. Each only in a turn. */
import { findTransition } from '@coppice/contract';
import { readEndReason } from '../record/ending.ts';
import { buildHibernated, HIBERNATED } from '../record/hibernation.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import type { SandboxVm } from './sandbox-vm.ts';

const LOST = { event: 'lost', reason: 'vm_lost' } as const;

/** It is hibernated, or its end waits to be told, else it is lost. */
export async function resolveMissing(live: LiveSandbox, vm: SandboxVm): Promise<void> {
  if (live.isFinal || (await resolveHibernated(live, vm))) return;
  const end = await vm.remove();
  const { event, reason } = end === undefined ? LOST : readEndReason(end);
  await live.handleEvent(event, reason, end);
}

/** True if it is hibernated, by its record or because the capture that was asked for is there. */
export async function resolveHibernated(live: LiveSandbox, vm: SandboxVm): Promise<boolean> {
  const { status, hibernation_id } = live.row;
  if (status === 'hibernated') return true;
  if (hibernation_id === null || findTransition(status, 'saved').outcome !== 'accept') return false;
  const capture = await vm.findHibernation(hibernation_id);
  if (capture === undefined) return false;
  await live.commit(buildHibernated(live.row, capture, live.now), HIBERNATED);
  return true;
}
