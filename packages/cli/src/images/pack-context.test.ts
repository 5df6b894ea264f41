import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { parseIgnoreFile } from './ignore-file.ts';
import { packContext } from './pack-context.ts';

test('GNU tar reads the archive; .dockerignore leaves files out, and its exceptions bring some back', async (context) => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-context-'));
  context.after(() => rmSync(directory, { recursive: true, force: true }));
  const long = `${'deep-'.repeat(30)}name.txt`;
  mkdirSync(join(directory, 'src', 'sub'), { recursive: true });
  mkdirSync(join(directory, 'node_modules', 'kept'), { recursive: true });
  writeFileSync(join(directory, 'src', 'main.js'), 'x'.repeat(1000), { mode: 0o755 });
  writeFileSync(join(directory, 'src', 'sub', long), 'long');
  writeFileSync(join(directory, 'src', 'größe.log'), 'l');
  writeFileSync(join(directory, 'node_modules', 'dropped.js'), 'd');
  writeFileSync(join(directory, 'node_modules', 'kept', 'k.js'), 'k');
  symlinkSync('main.js', join(directory, 'src', 'link'));
  writeFileSync(join(directory, '.dockerignore'), '# comment\nnode_modules\n!node_modules/kept\n**/*.log\n');
  const archive = await buffer(Readable.from(packContext(directory)));
  const names = execFileSync('tar', ['-tf', '-'], { input: archive, encoding: 'utf8' }).trim().split('\n');
  assert.deepEqual(names, [
    '.dockerignore',
    'node_modules/kept/',
    'node_modules/kept/k.js',
    'src/',
    'src/link',
    'src/main.js',
    'src/sub/',
    `src/sub/${long}`,
  ]);
  const content = execFileSync('tar', ['-xOf', '-', `src/sub/${long}`], { input: archive, encoding: 'utf8' });
  assert.equal(content, 'long');
});

test('rules of .dockerignore are as in Docker', () => {
  for (const [rules, ignored, kept] of [
    ['*.md', ['a.md'], ['d/a.md', 'md']],
    ['**/*.md', ['a.md', 'd/e/a.md'], ['a.mdx']],
    ['d', ['d', 'd/e/f'], ['dd', 'x/d']],
    ['/d/', ['d', 'd/x'], ['x/d']],
    ['*\n!keep', ['a', 'd/x'], ['keep', 'keep/x']],
    ['d/?', ['d/x'], ['d/xy']],
    ['a/**/z', ['a/z', 'a/b/c/z'], ['z', 'a/zz']],
  ] as const) {
    const { isIgnored } = parseIgnoreFile(rules);
    for (const path of ignored) assert.equal(isIgnored(path), true, `${rules}: ${path}`);
    for (const path of kept) assert.equal(isIgnored(path), false, `${rules}: ${path}`);
  }
});
