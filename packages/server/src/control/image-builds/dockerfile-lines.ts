/** Splits a Dockerfile into instructions: comments, continuation lines, the escape directive and here-documents of RUN. */
import { AppError } from '@coppice/contract';

export interface Instruction {
  /** Number of its first line, from 1. */
  line: number;
  /** In upper case. */
  keyword: string;
  /** All after the keyword, in one line. */
  rest: string;
  /** The here-document of a RUN. */
  document?: string | undefined;
}

const DIRECTIVE = /^#\s*(\w+)\s*=\s*(\S+)\s*$/u;
const HERE = /^<<(-?)(["']?)([A-Za-z_][A-Za-z0-9_]*)\2\s*$/u;
const ANY_HERE = /<<-?["']?[A-Za-z_]/u;

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
    const here = HERE.exec(instruction.rest);
    if (instruction.keyword === 'RUN' && here !== null) {
      const document = readDocument(lines, index, { end: here[3] ?? '', strips: here[1] === '-' });
      instruction.document = document.text;
      index = document.next;
    } else if (ANY_HERE.test(instruction.rest) && instruction.keyword !== 'RUN')
      throw refuseLine(
        instruction.line,
        'a here-document is supported in RUN only; copy a file of the context',
      );
    instructions.push(instruction);
  }
  return { instructions, escape };
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
  for (let index = start; index < lines.length; index += 1) {
    const line = lines[index] ?? '';
    // Comments and empty lines between the parts of an instruction are left out.
    if (index > start && isSkipped(line)) continue;
    const trimmed = line.trimEnd();
    if (!trimmed.endsWith(escape)) return { text: text + line, next: index + 1 };
    text += trimmed.slice(0, -1);
  }
  return { text, next: lines.length };
}

function readInstruction(text: string, line: number): Instruction {
  const [, keyword = '', rest = ''] = /^\s*([A-Za-z]+)(?:\s+([^]*))?$/u.exec(text) ?? [];
  if (keyword === '') throw refuseLine(line, 'it does not begin with an instruction, such as RUN');
  return { line, keyword: keyword.toUpperCase(), rest: rest.trim() };
}

function readDocument(
  lines: readonly string[],
  start: number,
  { end, strips }: { end: string; strips: boolean },
): { text: string; next: number } {
  const content: string[] = [];
  for (let index = start; index < lines.length; index += 1) {
    const line = strips ? (lines[index] ?? '').replace(/^\t+/u, '') : (lines[index] ?? '');
    if (line === end) return { text: content.join('\n'), next: index + 1 };
    content.push(line);
  }
  throw refuseLine(start, `the here-document has no end; write a line with only ${end}`);
}
