/**
 * The log of a build as lines of text. The output of programs is hostile: terminal sequences are removed, and hidden
 * characters are shown as escapes.
 */
import type { ImageBuildEvent } from '../../../../sdk/src/index.ts';
import { withoutSequences } from '../../ui/terminal-sequences.ts';
import { showHiddenInLines } from '../../ui/visible-text.ts';

export interface LogLine {
  /** Unique and increasing. */
  id: number;
  kind: 'step' | 'stdout' | 'stderr' | 'note';
  text: string;
  /** Of a step: it does not run. */
  isCached?: boolean;
  step?: number;
}

/** Lines that are kept; earlier ones are dropped, and counted. */
const MAX_LINES = 5000;
/** A line without an end is cut here: a page must not hold one line of megabytes. */
const MAX_LINE_LENGTH = 4000;

/** Builds lines from the events of a log as they arrive. */
export class BuildLogLines {
  lines: readonly LogLine[] = [];
  /** Lines that were dropped because there are too many. */
  dropped = 0;
  /** Output after the last line end, for each stream. */
  readonly #open = { stdout: '', stderr: '' };
  #lastId = 0;

  add(event: ImageBuildEvent): void {
    if (event.type === 'stdout' || event.type === 'stderr') return this.#print(event.type, event.data);
    this.#closeOpen();
    if (event.type === 'step')
      this.#push([{ kind: 'step', text: event.text, isCached: event.cached, step: event.step }]);
    else if (event.type === 'note') this.#push([{ kind: 'note', text: event.text }]);
  }

  #print(kind: 'stdout' | 'stderr', data: string): void {
    const parts = `${this.#open[kind]}${data}`.split('\n');
    const rest = parts.pop() ?? '';
    const isLong = rest.length > MAX_LINE_LENGTH;
    this.#open[kind] = isLong ? '' : rest;
    this.#push((isLong ? [...parts, rest] : parts).map((text) => ({ kind, text })));
  }

  #closeOpen(): void {
    for (const kind of ['stdout', 'stderr'] as const) {
      if (this.#open[kind] !== '') this.#push([{ kind, text: this.#open[kind] }]);
      this.#open[kind] = '';
    }
  }

  #push(added: readonly Omit<LogLine, 'id'>[]): void {
    if (added.length === 0) return;
    const next = added.map((line) => ({ ...line, id: (this.#lastId += 1), text: cleanLine(line.text) }));
    const all = [...this.lines, ...next];
    this.dropped += Math.max(0, all.length - MAX_LINES);
    this.lines = all.slice(-MAX_LINES);
  }
}

/** Makes output of programs a text. The error of a build quotes its end. */
export function cleanOutput(text: string): string {
  return showHiddenInLines(withoutSequences(text));
}

/** Progress bars overwrite their line with a carriage return: the last state counts. */
function cleanLine(line: string): string {
  const [last = ''] = line.replace(/\r+$/u, '').split('\r').slice(-1);
  const text = cleanOutput(last);
  return text.length > MAX_LINE_LENGTH ? `${text.slice(0, MAX_LINE_LENGTH)}…` : text;
}
