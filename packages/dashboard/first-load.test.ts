/** How much a browser loads for the first page of the dashboard. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';

const BUILDER = fileURLToPath(new URL('write-dashboard.ts', import.meta.url));
/** Bytes as the service sends them, compressed. */
const MOST_SHELL = 60_000;
const MOST_FIRST_PAGE = 100_000;
/** Text that only the libraries of the terminal and of the charts contain. */
const HEAVY = [
  ['terminal', 'xterm-helper-textarea'],
  ['charts', 'u-legend'],
] as const;

const directory = mkdtempSync(join(tmpdir(), 'coppice-first-load-'));
before(() => promisify(execFile)(process.execPath, [BUILDER, directory], { timeout: 120_000 }));
after(() => rmSync(directory, { recursive: true, force: true }));

const pathOf = (file: string): string => join(directory, `${file}.gz`);
const read = (file: string): string => gunzipSync(readFileSync(pathOf(file))).toString();
const measure = (files: Iterable<string>): number =>
  Array.from(files).reduce((sum, file) => sum + statSync(pathOf(file)).size, 0);

/** Returns the document, and the scripts and styles that it names. */
function listShell(): Set<string> {
  const named = Array.from(
    read('index.html').matchAll(/(?:src|href)="\/([^"]+\.(?:js|css))"/gu),
    ([, file]) => file,
  );
  return new Set(['index.html', ...named.filter((file) => file !== undefined)]);
}

/** Adds all that scripts import at once, and so must be there before any of them runs. */
function addImports(files: ReadonlySet<string>): Set<string> {
  const all = new Set(files);
  for (const file of all) {
    if (!file.endsWith('.js')) continue;
    for (const [, name] of read(file).matchAll(/(?:from|import)\s*["']\.\/([\w.-]+\.js)["']/gu))
      all.add(`assets/${name}`);
  }
  return all;
}

function listScripts(): string[] {
  return readdirSync(join(directory, 'assets'))
    .filter((name) => name.endsWith('.js.gz'))
    .map((name) => `assets/${name.replace(/\.gz$/u, '')}`);
}

test('the shell, and the first page with it, are small', (t) => {
  const shell = addImports(listShell());
  // The list is in the document's own scripts, or in some that the router loads.
  const lists = listScripts().filter((file) => read(file).includes('No sandbox is running'));
  assert.equal(lists.length, 1, 'exactly one script has the list');
  const page = addImports(new Set([...shell, ...lists]));
  for (const file of page) assert.ok(existsSync(pathOf(file)), file);
  const [shellBytes, pageBytes] = [measure(shell), measure(page)];
  t.diagnostic(
    `shell: ${shellBytes} bytes in ${shell.size} files; with the list: ${pageBytes} in ${page.size}`,
  );
  assert.ok(shellBytes < MOST_SHELL, `the shell has ${shellBytes} bytes`);
  assert.ok(pageBytes < MOST_FIRST_PAGE, `the first page has ${pageBytes} bytes`);
});

test('the terminal and the charts are loaded only by the pages that have them', () => {
  const first = addImports(listShell());
  for (const [library, mark] of HEAVY) {
    const owners = listScripts().filter((file) => read(file).includes(mark));
    assert.ok(owners.length > 0, `no script has the ${library}`);
    for (const owner of owners) assert.equal(first.has(owner), false, `${owner} has the ${library}`);
  }
});
