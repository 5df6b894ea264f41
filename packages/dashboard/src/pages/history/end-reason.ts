import type { StatusReason } from '../../../../contract/src/sandbox/lifecycle.ts';

const REASONS: Readonly<Record<StatusReason, string>> = {
  requested: 'Destroyed by a caller',
  idle_timeout: 'Idle for too long',
  max_lifetime: 'Reached its longest life',
  expires_at: 'Reached its end time',
  guest_shutdown: 'Shut itself down',
  guest_panic: 'Its kernel crashed',
  vm_lost: 'Its virtual machine was lost',
  create_failed: 'Could not be created',
  control_restarted: 'The service restarted during its create',
};

/** Returns why a sandbox ended, in words. A newer service may have reasons without any: they are shown as they are. */
export function describeReason(reason: string | null): string {
  if (reason === null) return 'Unknown';
  return Object.hasOwn(REASONS, reason) ? REASONS[reason as StatusReason] : reason.replaceAll('_', ' ');
}
