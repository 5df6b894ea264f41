import type { CommandInfo } from '../../../../../sdk/src/index.ts';
import type { Tone } from '../../../ui/Badge.tsx';

/** Describes how a command stands, with the tone of its badge. */
export function describeCommand({ state, exitCode, timedOut }: CommandInfo): { text: string; tone: Tone } {
  if (state === 'running') return { text: 'running', tone: 'busy' };
  if (state === 'lost') return { text: 'lost', tone: 'warn' };
  if (timedOut) return { text: 'timed out', tone: 'bad' };
  if (exitCode === 0) return { text: 'exited 0', tone: 'good' };
  return { text: exitCode === null ? 'exited' : `exited ${exitCode}`, tone: 'bad' };
}

/** Explains an exit code beyond what its number says. */
export function explainExit({ state, exitCode, timedOut }: CommandInfo): string | undefined {
  if (state === 'lost')
    return 'The sandbox ended before the command, or was rolled back to a time before its start, or the command could not be started.';
  if (timedOut) return 'It reached its time limit and was killed.';
  if (exitCode === 126) return 'The shell could not run it.';
  if (exitCode === 127) return 'The shell did not find it.';
  if (exitCode !== null && exitCode > 128 && exitCode <= 128 + 64)
    return `Signal ${exitCode - 128} ended it.`;
  return undefined;
}

/** Returns how long a command has run, or ran, in milliseconds. Undefined if its end was not observed. */
export function durationOf({ startedAt, endedAt, state }: CommandInfo, now: number): number | undefined {
  if (endedAt === null && state !== 'running') return undefined;
  return Math.max(0, (endedAt === null ? now : Date.parse(endedAt)) - Date.parse(startedAt));
}
