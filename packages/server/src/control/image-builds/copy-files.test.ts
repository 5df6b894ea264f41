import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { buffer } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { writeTar } from '../../../../../e2e/fixtures/images/oci-layout.ts';
import { matchesName, packSelection, selectFiles } from './copy-files.ts';

let directory = '';
let context = '';
before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-copy-'));
  context = join(directory, 'context.tar');
  await writeTar(context, [
    { path: 'package.json', content: 'p', mode: 0o600 },
    { path: 'package-lock.json', content: 'l' },
    { path: 'src/' },
    { path: 'src/main.js', content: 'main' },
    { path: 'src/größe.txt', content: 'umlaut' },
    { path: 'link', type: 'symlink', target: '/etc/passwd' },
  ]);
});
after(() => rmSync(directory, { recursive: true, force: true }));

async function copied(source: string, how: { name?: string; mode?: number } = {}): Promise<string> {
  const archive = await buffer(packSelection(context, await selectFiles(context, source), how));
  const list = execFileSync('tar', ['-tvf', '-'], {
    input: archive,
    encoding: 'utf8',
    env: { LC_ALL: 'C.UTF-8' },
  });
  return list
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.replace(/^(\S+).*\d\d:\d\d(?::\d\d)? (.*)$/u, '$1 $2'))
    .join('\n');
}

test('a file, the content of a directory, everything, and names with wildcards are copied', async () => {
  assert.equal(await copied('./package.json'), '-rw------- package.json');
  assert.equal(await copied('package.json', { name: 'other', mode: 0o755 }), '-rwxr-xr-x other');
  assert.equal(await copied('src/'), '-rw-r--r-- main.js\n-rw-r--r-- größe.txt');
  assert.equal(await copied('src/gr*.txt'), '-rw-r--r-- größe.txt');
  assert.equal(await copied('pack*.json'), '-rw------- package.json\n-rw-r--r-- package-lock.json');
  assert.equal((await copied('.')).split('\n').length, 6);
  assert.equal(await copied('link'), 'lrw-r--r-- link -> /etc/passwd');
  await assert.rejects(selectFiles(context, 'absent'), /the context has no "absent"/u);
  assert.equal(
    await copied('../../package.json'),
    '-rw------- package.json',
    'no path leads out of the context',
  );
});

test('a pattern with many stars ends at once', () => {
  const begun = performance.now();
  assert.equal(matchesName(`${'*a'.repeat(2000)}b`, 'a'.repeat(255)), false);
  assert.ok(performance.now() - begun < 1000);
  assert.equal(matchesName('*.js', 'main.js'), true);
  assert.equal(matchesName('m?in*', 'main.js'), true);
  assert.equal(matchesName('a*b*c', 'axbyb'), false);
});

test('a reader that holds what it has read gets the bytes of large files unchanged', async () => {
  const large = join(directory, 'large.tar');
  const content = Buffer.alloc(5 << 20);
  for (let at = 0; at < content.length; at += 4) content.writeUInt32LE(at, at);
  await writeTar(large, [{ path: 'large', content }]);
  const held: Buffer[] = [];
  for await (const chunk of packSelection(large, await selectFiles(large, 'large'), {})) {
    held.push(chunk as Buffer);
    await delay(5);
  }
  const unpacked = execFileSync('tar', ['-xOf', '-', 'large'], {
    input: Buffer.concat(held),
    maxBuffer: 2 * content.length,
  });
  assert.equal(unpacked.equals(content), true);
});
