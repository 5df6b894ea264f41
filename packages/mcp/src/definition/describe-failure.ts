/** Errors of tools as texts for a model: what failed, and what to do next. */
import { CoppiceError } from '../../../sdk/src/index.ts';

/** An error of a tool itself. Its message already says what to do next. */
export class ToolError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ToolError';
  }
}

/** Models invent ids, so an unknown one gets the two calls that return real ones. */
export function noSandbox(id: string): ToolError {
  return new ToolError(
    `There is no sandbox ${id}. Create one with create_sandbox, or list those that exist with list_sandboxes.`,
  );
}

const LOST =
  'The call may have taken effect or not: check with list_sandboxes, and repeat it if needed. ' +
  'A command that was running has been killed.';

/** Next steps by the code of an error. A code without an entry has its remedy in the message of the service. */
const NEXT_STEPS: Readonly<Record<string, string>> = {
  unauthorized:
    'The API key of this MCP server is missing, wrong, expired or revoked. A person has to configure a valid key; ' +
    'repeating the call does not help.',
  forbidden: 'A person has to configure an API key that allows this; repeating the call does not help.',
  credit_exhausted: 'A person has to add credit; sandboxes that are not needed can be destroyed meanwhile.',
  capacity: 'Destroy or hibernate sandboxes that are not needed, or try again later.',
  rate_limited: 'Wait before the next call.',
  invalid_state:
    'A hibernated sandbox runs again after resume. A destroyed or failed one cannot be used: create one with create_sandbox.',
  headers_too_large: 'Use a shorter path, or fewer or shorter labels.',
  file_not_found: 'See what exists with list_files.',
  image_not_pinned: 'Name a tag or a digest, for example python:3.12-slim.',
  connection_refused: 'The service does not run, or is restarting. Try again in a few seconds.',
  connection_failed: `The connection to the service broke off. ${LOST}`,
  unavailable: `The service is restarting. Try again in a few seconds. ${LOST}`,
  timeout: LOST,
  outcome_unknown: 'The service finishes the call later: see list_sandboxes.',
  guest_unreachable:
    'The sandbox does not answer. If that lasts, destroy it with destroy_sandbox and create another.',
};

/** Returns the text for a model. */
export function describeFailure(error: unknown): string {
  if (error instanceof CoppiceError) {
    const { detail, requestId } = error;
    const code = error.serviceCode ?? error.code;
    const next = NEXT_STEPS[code];
    const id = requestId === undefined ? '' : ` (request ${requestId})`;
    return [`${code}: ${endSentence(detail ?? error.message)}${id}`, next].filter(Boolean).join('\n');
  }
  return error instanceof Error ? error.message : String(error);
}

function endSentence(text: string): string {
  return /[.!?]$/u.test(text) ? text : `${text}.`;
}
