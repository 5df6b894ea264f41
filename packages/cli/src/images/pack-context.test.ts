import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { Failure } from '../output/failure.ts';
import { IgnoreRules, parseIgnoreFile } from './ignore-file.ts';
import { packContext } from './pack-context.ts';

/** Makes a directory that is removed after the test. */
function makeDirectory(context: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-context-'));
  context.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

async function pack(directory: string, rules: IgnoreRules): Promise<{ archive: Buffer; names: string[] }> {
  const archive = await buffer(Readable.from(packContext(directory, rules)));
  const list = execFileSync('tar', ['-tf', '-'], { input: archive, encoding: 'utf8' });
  return { archive, names: list.trim().split('\n') };
}

test('GNU tar reads the archive; .dockerignore leaves files out, and its exceptions bring some back', async (context) => {
  const directory = makeDirectory(context);
  const long = `${'deep-'.repeat(30)}name.txt`;
  mkdirSync(join(directory, 'src', 'sub'), { recursive: true });
  mkdirSync(join(directory, 'node_modules', 'kept'), { recursive: true });
  writeFileSync(join(directory, 'src', 'main.js'), 'x'.repeat(1000), { mode: 0o755 });
  writeFileSync(join(directory, 'src', 'sub', long), 'long');
  writeFileSync(join(directory, 'src', 'größe.log'), 'l');
  writeFileSync(join(directory, 'node_modules', 'dropped.js'), 'd');
  writeFileSync(join(directory, 'node_modules', 'kept', 'k.js'), 'k');
  symlinkSync('main.js', join(directory, 'src', 'link'));
  writeFileSync(join(directory, '.dockerignore'), '');
  const rules = parseIgnoreFile('# comment\nnode_modules\n!node_modules/kept\n**/*.log\n', '.dockerignore');
  const { archive, names } = await pack(directory, rules);
  assert.deepEqual(names, [
    '.dockerignore',
    'node_modules/',
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

test('an ignored directory is read only if an exception may lead into it, and packed only for a file in it', async (context) => {
  const directory = makeDirectory(context);
  for (const path of ['a/x/kept', 'b/x/other', 'c/y']) mkdirSync(join(directory, path), { recursive: true });
  for (const path of ['a/x/kept/file', 'b/x/other/file', 'c/y/file'])
    writeFileSync(join(directory, path), '');
  chmodSync(join(directory, 'a', 'x'), 0o711);
  const rules = parseIgnoreFile('*\n!*/x/kept/file', '.dockerignore');
  const judge = context.mock.method(rules, 'judge');
  const { archive, names } = await pack(directory, rules);
  assert.deepEqual(names, ['a/', 'a/x/', 'a/x/kept/', 'a/x/kept/file']);
  const modes = execFileSync('tar', ['-tvf', '-', 'a/x/'], { input: archive, encoding: 'utf8' });
  assert.match(modes, /^drwx--x--x/u);
  const judged = judge.mock.calls.map(({ arguments: [path] }) => path);
  assert.deepEqual(judged, ['a', 'a/x', 'a/x/kept', 'a/x/kept/file', 'b', 'b/x', 'b/x/other', 'c', 'c/y']);
});

test('the Dockerfile and the .dockerignore belong to the context unless they are listed', async (context) => {
  const directory = makeDirectory(context);
  for (const name of ['Dockerfile', '.dockerignore', 'a']) writeFileSync(join(directory, name), '');
  assert.deepEqual((await pack(directory, new IgnoreRules([]))).names, ['.dockerignore', 'Dockerfile', 'a']);
  const rules = parseIgnoreFile('Dockerfile\n.dockerignore', '.dockerignore');
  assert.deepEqual((await pack(directory, rules)).names, ['a']);
});

test('a name that is not UTF-8 is named with the remedy, and a rule leaves it out', async (context) => {
  const directory = makeDirectory(context);
  const strange = (...names: string[]): Buffer =>
    Buffer.concat([Buffer.from(`${directory}/`), Buffer.from(names.join('/'), 'latin1')]);
  mkdirSync(join(directory, 'src'));
  writeFileSync(join(directory, 'src', 'größe'), '');
  writeFileSync(strange('src', 'caf\u00e9.txt'), '');
  await assert.rejects(pack(directory, new IgnoreRules([])), (error) => {
    assert.ok(error instanceof Failure);
    assert.match(error.message, /src\/caf\\xe9\.txt is not UTF-8: rename it, or leave it out with a rule/u);
    return true;
  });
  for (const rule of ['src/caf*', '**/*.txt', 'src/caf?.txt']) {
    const { names } = await pack(directory, parseIgnoreFile(rule, '.dockerignore'));
    assert.equal(names.length, 2, rule);
  }
  rmSync(strange('src', 'caf\u00e9.txt'));
  mkdirSync(strange('d\u00e9'));
  writeFileSync(strange('d\u00e9', 'kept'), '');
  await assert.rejects(pack(directory, new IgnoreRules([])), /d\\xe9 is not UTF-8/u);
  await assert.rejects(
    pack(directory, parseIgnoreFile('d*\n!*/kept', '.dockerignore')),
    /d\\xe9 is not UTF-8/u,
  );
  assert.equal((await pack(directory, parseIgnoreFile('d*', '.dockerignore'))).names.length, 2);
});

test('the target of a link that is not UTF-8 is named with the remedy', async (context) => {
  const directory = makeDirectory(context);
  symlinkSync(Buffer.from('caf\u00e9', 'latin1'), join(directory, 'link'));
  await assert.rejects(
    pack(directory, new IgnoreRules([])),
    /the target of the link .*\/link is not UTF-8 \(caf\\xe9\): change it, or leave the link out/u,
  );
  writeFileSync(join(directory, 'a'), '');
  assert.deepEqual((await pack(directory, parseIgnoreFile('link', '.dockerignore'))).names, ['a']);
});
