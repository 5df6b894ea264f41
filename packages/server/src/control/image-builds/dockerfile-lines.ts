/** Splits a Dockerfile into instructions: comments, continuation lines, the escape directive and here-documents of RUN. */
import { AppError } from '@coppice/contract';
import { scanWords } from './dockerfile-words.ts';

export interface Instruction {
  /** Number of its first line, from 1. */
  line: number;
  /** In upper case. */
  keyword: string;
  /** All after the keyword, in one line. */
  rest: string;
  /** The here-document that a RUN consists of. */
  document?: string | undefined;
}

const DIRECTIVE = /^#\s*(\w+)\s*=\s*(\S+)\s*$/u;
/** A word that begins a here-document, also of a file descriptor. */
const HERE = /^\d*<<(-?)(["']?)([A-Za-z_][\w.-]*)\2$/u;
/** A shell would take this for one, too, but BuildKit would not. `$((1<<N))` is none. */
const CLOSE_TO_HERE = /^[\w./-]*<<-?["']?[A-Za-z_]/u;

/** Throws `invalid_request` that names the line and the remedy. */
export function refuseLine(line: number, reason: string): AppError {
  return new AppError('invalid_request', `dockerfile: line ${line}: ${reason}`);
}

export function splitInstructions(text: string): { instructions: Instruction[]; escape: string } {
  const lines = text.replace(/^\uFEFF/u, '').split(/\r?\n/u);
  const { escape, next } = readDirectives(lines);
  const instructions: Instruction[] = [];
  for (let index = next; index < lines.length;) {
    if (isSkipped(lines[index] ?? '')) {
      index += 1;
      continue;
    }
    const joined = joinLines(lines, index, escape);
    const instruction = readInstruction(joined.text, index + 1);
    index = joined.next;
    if (instruction.keyword === 'RUN') index = takeDocuments(instruction, { lines, next: index, escape });
    else refuseDocuments(instruction, escape);
    instructions.push(instruction);
  }
  return { instructions, escape };
}

/**
 * Takes over the here-documents of a RUN. One that is all of the RUN is its script. Others are left to the shell, which gets the
 * instruction with their lines. Returns the index of the next line.
 */
function takeDocuments(
  instruction: Instruction,
  { lines, next, escape }: { lines: readonly string[]; next: number; escape: string },
): number {
  const { line, rest } = instruction;
  if (!rest.includes('<<')) return next;
  const { words, isClosed } = scanWords(rest, escape);
  if (!isClosed && /<<-?["']?[A-Za-z_]/u.test(rest))
    throw refuseLine(
      line,
      'a quote is not closed before the end of the line; close it before a here-document',
    );
  const heres = words.map((word) => HERE.exec(word)).filter((here) => here !== null);
  const close = words.find((word) => CLOSE_TO_HERE.test(word) && !HERE.test(word));
  if (close !== undefined)
    throw refuseLine(
      line,
      `${close.slice(0, 64)}: write a here-document with spaces around it, such as cat <<EOF`,
    );
  let index = next;
  for (const [, dash, , end = ''] of heres) {
    const document = readDocument(lines, index, { end, strips: dash === '-' });
    index = document.next;
    if (words.length === 1) instruction.document = document.stripped;
    else instruction.rest += `\n${document.whole}${end}`;
  }
  return index;
}

function refuseDocuments({ line, keyword, rest }: Instruction, escape: string): void {
  if (keyword !== 'COPY' && keyword !== 'ADD') return;
  if (scanWords(rest, escape).words.some((word) => HERE.test(word)))
    throw refuseLine(line, 'a here-document is supported in RUN only; copy a file of the context');
}

function readDirectives(lines: readonly string[]): { escape: string; next: number } {
  let escape = '\\';
  let next = 0;
  for (
    let found = DIRECTIVE.exec(lines[next] ?? '');
    found !== null;
    found = DIRECTIVE.exec(lines[next] ?? '')
  ) {
    if (found[1]?.toLowerCase() === 'escape') {
      if (found[2] !== '\\' && found[2] !== '`') throw refuseLine(next + 1, 'escape must be \\ or `');
      escape = found[2];
    }
    next += 1;
  }
  return { escape, next };
}

function isSkipped(line: string): boolean {
  return /^\s*(?:#|$)/u.test(line);
}

function joinLines(lines: readonly string[], start: number, escape: string): { text: string; next: number } {
  let text = '';
  // As in BuildKit, an escape before the last one takes its meaning, so the line ends there: `DIR=C:\\`.
  const doubled = escape + escape;
  for (let index = start; index < lines.length; index += 1) {
    const line = lines[index] ?? '';
    // Comments and empty lines between the parts of an instruction are left out.
    if (index > start && isSkipped(line)) continue;
    const trimmed = line.trimEnd();
    if (!trimmed.endsWith(escape) || trimmed.endsWith(doubled)) return { text: text + line, next: index + 1 };
    text += trimmed.slice(0, -1);
  }
  return { text, next: lines.length };
}

function readInstruction(text: string, line: number): Instruction {
  const [, keyword = '', rest = ''] = /^\s*([A-Za-z]+)(?:\s+([^]*))?$/u.exec(text) ?? [];
  if (keyword === '') throw refuseLine(line, 'it does not begin with an instruction, such as RUN');
  return { line, keyword: keyword.toUpperCase(), rest: rest.trim() };
}

/** `whole` is the text as it is written, with the end of each line. `stripped` has no tabs at the begin of lines if `strips`. */
function readDocument(
  lines: readonly string[],
  start: number,
  { end, strips }: { end: string; strips: boolean },
): { stripped: string; whole: string; next: number } {
  const content: string[] = [];
  let whole = '';
  for (let index = start; index < lines.length; index += 1) {
    const written = lines[index] ?? '';
    const line = strips ? written.replace(/^\t+/u, '') : written;
    if (line === end) return { stripped: content.join('\n'), whole, next: index + 1 };
    content.push(line);
    whole += `${written}\n`;
  }
  throw refuseLine(start, `the here-document has no end; write a line with only ${end}`);
}
