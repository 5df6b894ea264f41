import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import pino from 'pino';
import { loadSites } from './sites.ts';
import { unpack, type StaticSite } from './static-site.ts';

let directory = '';
let lines: string[] = [];
const log = pino({ level: 'debug' }, { write: (line) => lines.push(line) });
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'static-site-'));
  mkdirSync(join(directory, 'docs'));
  lines = [];
});
afterEach(() => rmSync(directory, { recursive: true }));

function loadDocumentation(documentationDir: string | undefined): StaticSite | undefined {
  return loadSites(documentationDir === undefined ? {} : { documentationDir }, log).documentation;
}

function loadDashboard(): StaticSite | undefined {
  return loadSites({ dashboardDir: directory }, log).dashboard;
}

function add(file: string, content: string): void {
  writeFileSync(join(directory, file), gzipSync(content));
}

test('each file is found under the path of its page', async () => {
  add('docs/404.html.gz', 'none');
  add('docs.html.gz', 'home');
  add('docs/data.json.gz', '{}');
  const documentation = loadDocumentation(directory);
  const home = documentation?.find('/docs');
  assert.equal(home?.type, 'text/html; charset=utf-8');
  assert.equal(String(home && (await unpack(home))), 'home');
  assert.equal(home && (await unpack(home)), home && (await unpack(home)), 'answers share the content');
  assert.equal(documentation?.find('/docs/data.json')?.type, 'application/json; charset=utf-8');
  assert.equal(documentation?.find('/docs.html'), undefined);
});

test('links out of the directory, and files without the suffix, are left out', () => {
  add('docs/404.html.gz', 'none');
  symlinkSync('/etc/passwd', join(directory, 'docs', 'passwd.gz'));
  writeFileSync(join(directory, 'docs', 'note.html'), 'plain');
  const documentation = loadDocumentation(directory);
  assert.ok(documentation !== undefined);
  assert.equal(documentation.find('/docs/passwd'), undefined);
  assert.equal(documentation.find('/docs/note'), undefined);
});

test('without readable files the service does without, and says so once', () => {
  for (const missing of [directory, join(directory, 'nothing')]) {
    lines = [];
    assert.equal(loadDocumentation(missing), undefined);
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? '', /the documentation cannot be read/u);
  }
  assert.equal(loadDocumentation(undefined), undefined);
});

test('the document of the dashboard is at /, and only files among the assets never change', () => {
  mkdirSync(join(directory, 'assets'));
  for (const name of ['index.html.gz', 'sandboxes.html.gz', 'theme.js.gz', 'assets/main-1.js.gz'])
    add(name, 'x');
  const dashboard = loadDashboard();
  assert.deepEqual(dashboard?.paths.toSorted(), ['/', '/assets/main-1.js', '/sandboxes', '/theme.js']);
  assert.equal(dashboard.get('/').type, 'text/html; charset=utf-8');
  assert.deepEqual(
    dashboard.paths.filter((path) => dashboard.get(path).isFixed),
    ['/assets/main-1.js'],
  );
  assert.deepEqual(lines, []);
});

test('a dashboard that has no document, or would hide a path of the service, is not served', () => {
  add('sandboxes.html.gz', 'x');
  assert.equal(loadDashboard(), undefined, 'no document');
  add('index.html.gz', 'x');
  assert.ok(loadDashboard() !== undefined);
  for (const name of ['v1.html', 'account.html', 'docs.html', 'openapi.json', 'metrics.html', 'docs/x.js']) {
    add(`${name}.gz`, 'x');
    lines = [];
    assert.equal(loadDashboard(), undefined, name);
    assert.match(lines[0] ?? '', /the dashboard cannot be read/u);
    assert.match(lines[0] ?? '', /would hide a path of the service/u);
    rmSync(join(directory, `${name}.gz`));
  }
});

test('a file whose name a router or a browser reads in another way is refused', () => {
  add('index.html.gz', 'x');
  for (const name of [':x.html', '*.html', 'a b.js', 'a%2e.js', '.hidden.js']) {
    add(`${name}.gz`, 'x');
    assert.equal(loadDashboard(), undefined, name);
    rmSync(join(directory, `${name}.gz`));
  }
  assert.ok(loadDashboard() !== undefined);
});
