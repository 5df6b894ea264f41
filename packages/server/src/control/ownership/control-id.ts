/** Ids of controls: one for each process. No other kind of id begins as they do, so that a name may be that of a runner or of a control. */
import { newId } from '../../lib/new-id.ts';

const PREFIX = 'ctl';

export function newControlId(): string {
  return newId(PREFIX);
}

export function isControlId(id: string): boolean {
  return id.startsWith(PREFIX);
}
