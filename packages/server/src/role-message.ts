/** What the roles, as processes, tell the supervisor. */
import type { Bootstrapped } from './control/accounts/bootstrapped.ts';
import type { HostRanges } from './runner/host-ranges/host-ranges.ts';

/** What a role tells the supervisor once it serves. */
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
  | { type: 'control-ready'; address: string; bootstrap: Bootstrapped };

/** Does nothing in a process that has no supervisor. */
export function tellSupervisor(message: RoleMessage): void {
  process.send?.(message);
}
