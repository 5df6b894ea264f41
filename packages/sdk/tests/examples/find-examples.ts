/** Finds the examples of the client: every `@example` in its sources, and every TypeScript block of its pages. The documentation compiles the other guides. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const REPOSITORY = fileURLToPath(new URL('../../../..', import.meta.url));
const SOURCES = 'packages/sdk/src';
const PAGES = ['README.md', 'packages/sdk/README.md', 'docs/guides/typescript-client.md'];

export interface Example {
  /** File and line of the first line of code. */
  place: string;
  code: string;
}

export function findExamples(): Example[] {
  const sources = readdirSync(join(REPOSITORY, SOURCES), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts') && !name.startsWith('testing/'))
    .map((name) => `${SOURCES}/${name}`);
  return [...sources.toSorted().flatMap(findInSource), ...PAGES.flatMap(findInPage)];
}

/** An example ends with the next tag or with the comment. */
function findInSource(file: string): Example[] {
  const examples: Example[] = [];
  let lines: string[] | undefined;
  const end = (): void => {
    const example = examples.at(-1);
    if (lines !== undefined && example !== undefined) example.code = lines.join('\n').trimEnd();
    lines = undefined;
  };
  for (const [index, line] of readLines(file).entries()) {
    const [, text] = /^\s*\* ?(?!\/)(.*)$/u.exec(line) ?? [];
    if (text === undefined || text.startsWith('@')) end();
    else lines?.push(text);
    if (text?.startsWith('@example') !== true) continue;
    lines = [];
    examples.push({ place: `${file}:${index + 2}`, code: '' });
  }
  return examples;
}

function findInPage(file: string): Example[] {
  const examples: Example[] = [];
  let example: Example | undefined;
  for (const [index, line] of readLines(file).entries()) {
    if (example === undefined) {
      if (/^```(?:ts|js)$/u.test(line)) example = { place: `${file}:${index + 2}`, code: '' };
    } else if (line === '```') {
      examples.push(example);
      example = undefined;
    } else example.code += `${line}\n`;
  }
  return examples;
}

function readLines(file: string): string[] {
  return readFileSync(join(REPOSITORY, file), 'utf8').split('\n');
}
