/** What no reviewer should have to look for: dead links, files that grew too long, names that say nothing. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, extname, join, relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const NOT_OURS = new Set(['node_modules', 'dist', 'results']);
const SOURCES = new Set(['.ts', '.mjs', '.js', '.go', '.sh']);
const MAX_LINES = 500;
/** Files that are longer all the same. The list may only become shorter. */
const LONG_FILES: readonly string[] = [];
const EMPTY_NAME = /(?:^|[-_.])(?:utils?|helpers?|common|managers?)(?:[-_.]|$)/u;
/** The brackets keep it from finding itself. */
const LEFT_UNDONE = /\b(?:T[O]DO|FIX[M]E)\b/u;
const LINK = /\[[^\]]*\]\((?<target>[^)\s]+)\)/gu;
const ELSEWHERE = /^[a-z][a-z+.-]*:/iu;

interface Line {
  number: number;
  text: string;
}

/** Paths from the root of all files of ours, directories that begin with a dot left out. */
function listFiles(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    const path = join(directory, entry.name);
    if (entry.isFile()) return [relative(ROOT, path)];
    if (!entry.isDirectory() || entry.name.startsWith('.') || NOT_OURS.has(entry.name)) return [];
    return listFiles(path);
  });
}

function readLines(path: string): Line[] {
  const lines = readFileSync(join(ROOT, path), 'utf8').split('\n');
  return lines.map((text, index) => ({ number: index + 1, text }));
}

function withoutCodeBlocks(lines: readonly Line[]): Line[] {
  let isCode = false;
  return lines.filter(({ text }) => {
    const isFence = text.trimStart().startsWith('```');
    if (isFence) isCode = !isCode;
    return !isCode && !isFence;
  });
}

/** As the places that show Markdown make them: lower case, punctuation dropped, spaces to dashes. */
function listAnchors(path: string): Set<string> {
  const headings = withoutCodeBlocks(readLines(path)).filter(({ text }) => /^#+ /u.test(text));
  return new Set(
    headings.map(({ text }) =>
      text
        .replace(/^#+ /u, '')
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

/** Why the link leads nowhere; undefined if it leads somewhere, or out of the repository. */
function findFault(page: string, target: string): string | undefined {
  if (ELSEWHERE.test(target)) return undefined;
  const [file = '', anchor] = target.split('#', 2);
  const path = file === '' ? page : join(dirname(page), decodeURIComponent(file));
  if (path.startsWith('..') || !existsSync(join(ROOT, path))) return `there is no ${path}`;
  if (anchor === undefined || statSync(join(ROOT, path)).isDirectory()) return undefined;
  return extname(path) !== '.md' || listAnchors(path).has(anchor) ? undefined : `${path} has no #${anchor}`;
}

function listDeadLinks(page: string): string[] {
  return withoutCodeBlocks(readLines(page)).flatMap(({ number, text }) =>
    [...text.matchAll(LINK)].flatMap(({ groups }) => {
      const target = groups?.['target'] ?? '';
      const fault = findFault(page, target);
      return fault === undefined ? [] : [`${page}:${number}: ${target}: ${fault}`];
    }),
  );
}

const FILES = listFiles(ROOT);
const SOURCE_FILES = FILES.filter((path) => SOURCES.has(extname(path)));

test('the tree is the one that is meant', () => {
  for (const path of ['README.md', 'agent/cmd/agent/main.go', 'packages/sdk/src/index.ts'])
    assert.ok(FILES.includes(path), `${path} was not found`);
});

test('every link within the repository leads somewhere', () => {
  const pages = FILES.filter((path) => extname(path) === '.md');
  assert.deepEqual(pages.flatMap(listDeadLinks), []);
});

test(`no source file has more than ${MAX_LINES} lines`, () => {
  const long = SOURCE_FILES.filter((path) => readLines(path).length - 1 > MAX_LINES);
  assert.deepEqual(long, LONG_FILES);
});

test('no file or folder is named after nothing in particular', () => {
  const names = new Set(
    FILES.flatMap((path) => path.split('/').map((_, depth, parts) => parts.slice(0, depth + 1).join('/'))),
  );
  assert.deepEqual(
    [...names].filter((path) => EMPTY_NAME.test(basename(path))),
    [],
  );
});

test('nothing in the sources is marked as left undone', () => {
  const marks = SOURCE_FILES.flatMap((path) =>
    readLines(path).flatMap(({ number, text }) => (LEFT_UNDONE.test(text) ? [`${path}:${number}`] : [])),
  );
  assert.deepEqual(marks, []);
});
