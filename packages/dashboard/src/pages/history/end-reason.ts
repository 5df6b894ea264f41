import type { StatusReason } from '../../../../contract/src/sandbox/lifecycle.ts';

const REASONS: Readonly<Record<StatusReason, string>> = {
  requested: 'On request',
  idle_timeout: 'Idle for too long',
  max_lifetime: 'Longest life reached',
  expires_at: 'End time reached',
  guest_shutdown: 'Shut itself down',
  guest_panic: 'Kernel crashed',
  vm_lost: 'Virtual machine lost',
  create_failed: 'Create failed',
  control_restarted: 'Service restarted during the create',
};

/** Returns why a sandbox ended, in words. A newer service may have reasons without any: they are shown as they are. */
export function describeReason(reason: string | null): string {
  if (reason === null) return 'Unknown';
  return Object.hasOwn(REASONS, reason) ? REASONS[reason as StatusReason] : reason.replaceAll('_', ' ');
}
