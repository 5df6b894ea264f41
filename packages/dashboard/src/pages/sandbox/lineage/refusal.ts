import {
  findAdmission,
  findTransition,
  SANDBOX_OPERATIONS,
  SANDBOX_STATES,
  type SandboxRequest,
} from '../../../../../contract/src/sandbox/lifecycle.ts';

/**
 * Returns why the service would refuse a request; undefined if it would not. Of states and operations of a newer service
 * nothing is known: the service decides.
 */
export function findRefusal(
  { status, operation }: { status: string; operation: string | null },
  request: SandboxRequest,
): string | undefined {
  const state = SANDBOX_STATES.find((one) => one === status);
  if (state === undefined) return undefined;
  if (findTransition(state, request).outcome === 'refuse')
    return state === 'destroyed' || state === 'failed' ? 'It has ended.' : `Not while it is ${state}.`;
  const running = SANDBOX_OPERATIONS.find((one) => one === operation) ?? null;
  return findAdmission(running, request) === 'refuse' && running !== null
    ? `Not during this operation: ${running.replaceAll('_', ' ')}.`
    : undefined;
}
