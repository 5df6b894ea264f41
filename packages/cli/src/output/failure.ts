import { CoppiceError } from '../../../sdk/src/index.ts';
import { toVisible } from './visible-text.ts';

/** Exit codes of the command line itself. Commands that pass on a code of the guest fail with `attached` instead. */
export const EXIT = { failed: 1, usage: 2, attached: 125, brokenPipe: 141, signal: 128 } as const;

/** The call cannot be made; the message names the remedy. */
export class UsageError extends Error {}

/** Something that the call needs is missing or wrong; the message names the remedy. */
export class Failure extends Error {}

/** Next steps by error code. Errors of the service usually name theirs themselves. */
const NEXT_STEPS: ReadonlyMap<string, string> = new Map([
  [
    'connection_refused',
    'check that the service runs, and its address (--url, SANDBOX_BASE_URL or "coppice profiles")',
  ],
  [
    'connection_failed',
    'check the address (--url, SANDBOX_BASE_URL or "coppice profiles") and the network, then try again',
  ],
  ['timeout', 'try again; if it persists, check the load of the service'],
  ['unauthorized', 'run "coppice login" with a valid key, or set SANDBOX_API_KEY'],
  ['unavailable', 'the service restarts: try again in a moment'],
  ['no_websocket', 'use Node.js 22 or newer'],
]);

/** Returns the error in one line, with the next step, without characters that control the terminal. */
export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return toVisible(String(error));
  if (!(error instanceof CoppiceError)) return toVisible(error.message);
  const step = NEXT_STEPS.get(error.code);
  const id = error.status >= 500 && error.requestId !== undefined ? ` (request ${error.requestId})` : '';
  return toVisible(`${error.detail ?? error.message}${id}${step === undefined ? '' : `; ${step}`}`);
}

/** Arguments that the client refuses are the user's. */
export function isUsage(error: unknown): boolean {
  return error instanceof UsageError || error instanceof TypeError;
}
