/**
 * Changes of a sandbox's state. Every new state comes from the contract's table (lifecycle.ts): the columns `status` and
 * `status_reason` accept only values that {@link changeState} has made.
 */
import {
  EVENT_REASONS,
  findTransition,
  type SandboxEvent,
  type SandboxState,
  type StatusReason,
} from '@coppice/contract';
import { invariant } from '../../../lib/invariant.ts';

declare const FROM_TABLE: unique symbol;
/** A value that the table of transitions has determined. */
type FromTable<T> = T & { readonly [FROM_TABLE]: true };

/** The columns that an event changes. */
export interface StateChange {
  status: FromTable<SandboxState>;
  /** Null while the sandbox lives. */
  status_reason: FromTable<StatusReason> | null;
}

/** Builds the change for an event. The caller has checked that the event changes this state. */
export function changeState(from: SandboxState, event: SandboxEvent, reason?: StatusReason): StateChange {
  const transition = findTransition(from, event);
  invariant(transition.outcome === 'accept', `the event ${event} changes the state ${from}`);
  const reasons = EVENT_REASONS[event];
  const isKnown = reason === undefined ? reasons.length === 0 : reasons.includes(reason);
  invariant(isKnown, `the event ${event} carries the reason ${reason}`);
  // The only place where such values are made.
  return {
    status: transition.to as FromTable<SandboxState>,
    status_reason: (reason ?? null) as FromTable<StatusReason> | null,
  };
}
