import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import pino from 'pino';
import { loadDocumentation, unpack } from './documentation.ts';

let directory = '';
let lines: string[] = [];
const log = pino({ level: 'debug' }, { write: (line) => lines.push(line) });
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'documentation-'));
  mkdirSync(join(directory, 'docs'));
  lines = [];
});
afterEach(() => rmSync(directory, { recursive: true }));

function add(file: string, content: string): void {
  writeFileSync(join(directory, file), gzipSync(content));
}

test('each file is found under the path of its page', async () => {
  add('docs/404.html.gz', 'none');
  add('docs.html.gz', 'home');
  add('docs/data.json.gz', '{}');
  const documentation = loadDocumentation(directory, log);
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
  const documentation = loadDocumentation(directory, log);
  assert.ok(documentation !== undefined);
  assert.equal(documentation.find('/docs/passwd'), undefined);
  assert.equal(documentation.find('/docs/note'), undefined);
});

test('without readable files the service does without, and says so once', () => {
  for (const missing of [directory, join(directory, 'nothing')]) {
    lines = [];
    assert.equal(loadDocumentation(missing, log), undefined);
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? '', /the documentation cannot be read/u);
  }
  assert.equal(loadDocumentation(undefined, log), undefined);
});
