import { showHiddenInLines } from './visible-text.ts';

/** Returns an error as a person should read it. It may quote what a caller, a guest or a registry wrote. */
export function explain(error: unknown): string {
  return showHiddenInLines(describe(error));
}

function describe(error: unknown): string {
  if (error instanceof Error && 'detail' in error && typeof error.detail === 'string') return error.detail;
  if (error instanceof Error && 'code' in error && isUnreachable(error.code))
    return 'The service cannot be reached. Check your connection and try again.';
  return error instanceof Error ? error.message : String(error);
}

function isUnreachable(code: unknown): boolean {
  return code === 'connection_failed' || code === 'connection_refused' || code === 'timeout';
}
