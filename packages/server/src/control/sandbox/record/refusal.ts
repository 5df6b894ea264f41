/**
 * Builds the error for a request that the state of a sandbox does not allow. The message names the state, the request
 * and a remedy.
 */
import {
  AppError,
  isFinal,
  type SandboxOperation,
  type SandboxRequest,
  type SandboxState,
  type StatusReason,
} from '@coppice/contract';

export interface Caller {
  /** True if a key with the scope `full` would have resumed the sandbox, but the caller's key may not. */
  needsFullKey?: boolean;
}

export interface Refused extends Caller {
  status: SandboxState;
  status_reason: StatusReason | null;
  operation: SandboxOperation | null;
}

const CANNOT: Record<SandboxRequest, string> = {
  use: 'its commands, files and ports cannot be reached',
  configure: 'its settings cannot be changed',
  set_egress: 'its network and credentials cannot be changed',
  fork: 'it cannot be forked',
  snapshot: 'no snapshot of it can be taken',
  hibernate: 'it cannot be hibernated',
  resume: 'it cannot be resumed',
  rollback: 'it cannot be rolled back',
  destroy: 'it cannot be destroyed',
};

export function buildRefusal(request: SandboxRequest, refused: Refused): AppError {
  const { status } = refused;
  return new AppError('invalid_state', describeRefusal(request, refused), { details: { status } });
}

function describeRefusal(request: SandboxRequest, refused: Refused): string {
  const { status, status_reason, operation } = refused;
  const reason = status_reason === null ? '' : ` (${status_reason})`;
  if (isFinal(status))
    return request === 'destroy'
      ? `the sandbox is ${status} already${reason}`
      : `the sandbox is ${status}${reason} and never runs again; create another one`;
  const state = operation ?? status;
  return `the sandbox is ${state}: ${CANNOT[request]}; ${findRemedy(request, refused)}`;
}

function findRemedy(request: SandboxRequest, { status, operation, needsFullKey }: Refused): string {
  if (operation === 'destroying') return 'create another one';
  if (status === 'creating') return 'wait until its status is running';
  if (request === 'resume')
    return operation === 'resuming'
      ? 'wait until its status is running'
      : 'only a hibernated sandbox can be resumed';
  if (operation === 'hibernating')
    return request === 'hibernate'
      ? 'wait until its status is hibernated'
      : 'wait until its status is hibernated, then resume it';
  if (request === 'hibernate') return 'it is already hibernated';
  if (needsFullKey === true) return 'a request with a key whose scope is "full" wakes it';
  if (request === 'use') return 'resume it first; one created with auto_hibernate resumes by itself';
  return 'resume it first';
}
