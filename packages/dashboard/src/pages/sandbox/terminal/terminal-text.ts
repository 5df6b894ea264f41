/** Words around a terminal: its title, and why it ended. */
import type { SandboxInfo } from '../../../../../sdk/src/index.ts';
import { explain } from '../../../ui/explain.ts';
import { listActions } from '../actions/offered-actions.ts';
import { explainReason } from '../overview/life-text.ts';

const MAX_TITLE = 60;
/** Control characters, and those that change the direction of the text around them. */
const UNSHOWN = /[\p{Cc}\u200E\u200F\u202A-\u202E\u2066-\u2069]+/gu;

/** Returns the title that a program gave its terminal as one short line; a number without one. */
export function cleanTitle(title: string, number: number): string {
  const text = title.replaceAll(UNSHOWN, ' ').trim();
  if (text === '') return `Shell ${number}`;
  const characters = Array.from(text);
  return characters.length <= MAX_TITLE ? text : `${characters.slice(0, MAX_TITLE - 1).join('')}…`;
}

/** How a terminal ended: its program exited, or the connection ended with an error. */
export type EndCause = { exitCode: number } | { error: unknown };

export interface EndNotice {
  text: string;
  /** The way to another shell. None if the sandbox has ended. */
  remedy: 'reconnect' | 'resume' | 'none';
}

/** Explains the end of a terminal, first by the state of the sandbox, as that is the reason of most lost connections. */
export function explainEnd(cause: EndCause, record: SandboxInfo): EndNotice {
  if (record.endedAt !== null)
    return {
      text: `The sandbox has ended. ${explainReason(record.statusReason) ?? ''}`.trim(),
      remedy: 'none',
    };
  if (record.operation === 'destroying') return { text: 'The sandbox is being destroyed.', remedy: 'none' };
  if (record.status === 'hibernated' || record.operation === 'hibernating') {
    const canResume = listActions(record).some(({ id, isAllowed }) => id === 'resume' && isAllowed);
    return {
      text: 'The sandbox is hibernated, which ended this terminal. Its other processes continue after a resume.',
      remedy: canResume ? 'resume' : 'none',
    };
  }
  if ('exitCode' in cause) {
    const code = cause.exitCode === 0 ? '' : ` with exit code ${cause.exitCode}`;
    return { text: `The shell has ended${code}.`, remedy: 'reconnect' };
  }
  return { text: explainError(cause.error), remedy: 'reconnect' };
}

const LOST: ReadonlySet<unknown> = new Set([
  'connection_failed',
  'connection_refused',
  'timeout',
  'unavailable',
]);

function explainError(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'reader_too_slow')
    return 'The program wrote faster than the page could draw, and the terminal was closed.';
  if (code === 'unauthorized') return 'Your session ended, which closed this terminal.';
  if (LOST.has(code)) return 'The connection was lost, which ended the shell.';
  return explain(error);
}
