/** Messages of the role processes to the supervisor. */
import type { Bootstrapped } from './control/accounts/bootstrap/bootstrapped.ts';
import type { HostRanges } from './runner/host-ranges/host-ranges.ts';

/** A message of a role that is ready or has changed. */
export type RoleMessage =
  | { type: 'accelerator-changed'; accelerator: string; reason: string }
  | {
      type: 'runner-ready';
      accelerator: string;
      reason: string;
      networkAbsence?: string;
      ranges?: HostRanges;
      /** Limits of sandboxes that are not in force, and why. */
      missingLimits?: string;
    }
  | { type: 'control-ready'; address: string; hasDashboard: boolean; bootstrap: Bootstrapped };

/** Sends a message to the supervisor; does nothing in a process without one. */
export function tellSupervisor(message: RoleMessage): void {
  process.send?.(message);
}
