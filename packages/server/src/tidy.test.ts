/** Checks that a reviewer should not have to do: dead links, files that grew too long, meaningless names. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, extname, join, relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const NOT_OURS = new Set(['node_modules', 'dist', 'results']);
const SOURCES = new Set(['.ts', '.mjs', '.js', '.go', '.py', '.sh']);
const MAX_LINES = 500;
/** Exceptions from the limit. The list may only become shorter. */
const LONG_FILES: readonly string[] = [];
const EMPTY_NAME = /(?:^|[-_.])(?:utils?|helpers?|common|managers?)(?:[-_.]|$)/u;
/** The brackets keep the pattern from matching itself. */
const LEFT_UNDONE = /\b(?:T[O]DO|FIX[M]E)\b/u;
const MAX_CELL = 120;
/** Limit for the list of ARCHITECTURE.md: files that a create crosses in control and runner. */
const MAX_CREATE_FILES = 45;
const MAX_FOLDER = 25;
/** Tests lie beside their sources, and only the latter are counted; the tests of `e2e` are its content. */
const BESIDE_SOURCE = /^(?!e2e\/).*(?:\.test\.\w+|_test\.go)$/u;
/** Phrases that make a reader stop, with what to write instead. The brackets keep the list from finding itself. */
const BANNED: readonly (readonly [pattern: RegExp, instead: string])[] = [
  [/\bgo(?:es|ing)? [o]n\b/iu, 'continue'],
  [/\blet(?:s|ting)? [g]o\b/iu, 'release'],
  [/\b(?:no|some|any)[b]ody\b/iu, 'the process, caller or user that acts'],
  [/\bwho[e]ver\b/iu, 'the process, caller or user that acts'],
  [/\bof (?:o[u]rs|the[i]rs)\b/iu, 'our, their'],
  [/\b(?:is|are|was|were|be|been|being) [t]old\b/iu, 'receives, is sent'],
  [/\bm[e]nd(?:s|ed|ing)?\b/iu, 'repair, reconcile'],
  [
    /(?:^\s*(?:\*|\/\*\*) ?|[.;] )(?:W[h]at|W[h]o|W[h]atever) [^?]*$/u,
    'a sentence that begins with its subject',
  ],
];
const LINK = /\[[^\]]*\]\((?<target>[^)\s]+)\)/gu;
const ELSEWHERE = /^[a-z][a-z+.-]*:/iu;

interface Line {
  number: number;
  text: string;
}

/** Lists all files of the repository, relative to the root, except in directories that begin with a dot. */
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

/** Lists the anchors that Markdown viewers generate: lower case, without punctuation, dashes for spaces. */
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

/** Returns why a link is dead; undefined if it works or leads out of the repository. */
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

/** The lines of a source file that hold a comment. Those of a docstring look like code, so all lines of Python count. */
function readComments(path: string): { place: string; text: string }[] {
  return readLines(path)
    .filter(({ text }) => extname(path) === '.py' || /^\s*(?:\*|\/\/|\/\*\*)/u.test(text))
    .map(({ number, text }) => ({ place: `${path}:${number}`, text }));
}

/** The lines of a page outside of its code blocks. */
function readProse(path: string): { place: string; text: string }[] {
  return withoutCodeBlocks(readLines(path)).map(({ number, text }) => ({ place: `${path}:${number}`, text }));
}

const ARCHITECTURE = readFileSync(join(ROOT, 'ARCHITECTURE.md'), 'utf8');
const FILES = listFiles(ROOT);
const SOURCE_FILES = FILES.filter((path) => SOURCES.has(extname(path)));

test('the checked tree is this repository', () => {
  for (const path of ['README.md', 'agent/cmd/agent/main.go', 'packages/sdk/src/index.ts'])
    assert.ok(FILES.includes(path), `${path} was not found`);
});

test('every link within the repository works', () => {
  const pages = FILES.filter((path) => extname(path) === '.md');
  assert.deepEqual(pages.flatMap(listDeadLinks), []);
});

test(`no source file has more than ${MAX_LINES} lines`, () => {
  const long = SOURCE_FILES.filter((path) => readLines(path).length - 1 > MAX_LINES);
  assert.deepEqual(long, LONG_FILES);
});

test('no file or folder has a meaningless name', () => {
  const names = new Set(
    FILES.flatMap((path) => path.split('/').map((_, depth, parts) => parts.slice(0, depth + 1).join('/'))),
  );
  assert.deepEqual(
    [...names].filter((path) => EMPTY_NAME.test(basename(path))),
    [],
  );
});

test('no source file contains a mark of unfinished work', () => {
  const marks = SOURCE_FILES.flatMap((path) =>
    readLines(path).flatMap(({ number, text }) => (LEFT_UNDONE.test(text) ? [`${path}:${number}`] : [])),
  );
  assert.deepEqual(marks, []);
});

test(`no cell of a table is wider than ${MAX_CELL} characters`, () => {
  const wide = FILES.filter((path) => extname(path) === '.md').flatMap((page) =>
    withoutCodeBlocks(readLines(page))
      .filter(
        ({ text }) => text.startsWith('|') && text.split('|').some((cell) => cell.trim().length > MAX_CELL),
      )
      .map(({ number }) => `${page}:${number}`),
  );
  assert.deepEqual(wide, []);
});

test(`no folder has more than ${MAX_FOLDER} source files`, () => {
  const sizes = new Map<string, number>();
  for (const path of SOURCE_FILES.filter((file) => !BESIDE_SOURCE.test(file)))
    sizes.set(dirname(path), (sizes.get(dirname(path)) ?? 0) + 1);
  assert.deepEqual(
    [...sizes].filter(([, size]) => size > MAX_FOLDER),
    [],
  );
});

test('comments and pages are written in plain English', () => {
  const pages = FILES.filter((path) => extname(path) === '.md');
  const found = [...SOURCE_FILES.flatMap(readComments), ...pages.flatMap(readProse)].flatMap(
    ({ place, text }) =>
      BANNED.filter(([pattern]) => pattern.test(text.replaceAll(/`[^`]*`/gu, '`…`'))).map(
        ([, instead]) => `${place}: ${text.trim()}; write: ${instead}`,
      ),
  );
  assert.deepEqual(found, []);
});

const ROLES: Readonly<Record<string, string>> = { C: 'control', R: 'runner', E: 'egress' };

/** Lists the TypeScript files that a text names. A bare name lies beside the path that was named before it. */
function listNamed(text: string): string[] {
  let folder = '';
  const named = [...text.matchAll(/`(?:(?<role>[CRE])\/)?(?<path>[\w./-]+\.ts)`/gu)].map(({ groups }) => {
    const { role, path = '' } = groups ?? {};
    if (path.startsWith('packages/')) return path;
    if (path.startsWith('lib/')) return `packages/server/src/${path}`;
    if (role === undefined) return join(folder, path);
    const file = `packages/server/src/${ROLES[role]}/${path}`;
    folder = dirname(file);
    return file;
  });
  return [...new Set(named)];
}

/** Lists the files that a source file imports, types included. */
function listImports(path: string): string[] {
  const text = readFileSync(join(ROOT, path), 'utf8');
  return [...text.matchAll(/from '(?<target>\.[^']+)'/gu)].map(({ groups }) =>
    join(dirname(path), groups?.['target'] ?? ''),
  );
}

test('every file on the paths of ARCHITECTURE.md exists', () => {
  const named = listNamed(ARCHITECTURE).filter((path) => path.startsWith('packages/server/'));
  assert.ok(named.length > 50, 'the paths are found');
  assert.deepEqual(
    named.filter((path) => !FILES.includes(path)),
    [],
  );
});

test(`a create crosses fewer than ${MAX_CREATE_FILES} files, each imported by another one of its role`, () => {
  const [, section = ''] = ARCHITECTURE.split('### Create: POST /v1/runs\n');
  const [, control = '', runner = '', roots = ''] = (section.split('\n### ', 1)[0] ?? '').split(
    /^(?:In control|In the runner|Composition roots)\b/mu,
  );
  const composed = listNamed(roots).flatMap(listImports);
  const parts = [control, runner].map(listNamed);
  assert.ok(parts.flat().length < MAX_CREATE_FILES, `${parts.flat().length} files are listed`);
  for (const files of parts) {
    assert.ok(files.length > 10, 'the files are found');
    const imported = new Set([...files.flatMap(listImports), ...composed]);
    assert.deepEqual(
      files.slice(1).filter((path) => !imported.has(path)),
      [],
      'no listed file imports these: a hop is missing in the list',
    );
  }
});
