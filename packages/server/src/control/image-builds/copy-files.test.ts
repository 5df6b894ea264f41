import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { buffer } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import fc from 'fast-check';
import { writeTar } from '../../../../../e2e/fixtures/images/oci-layout.ts';
import { indexContext, type ContextFiles } from './context-index.ts';
import { CopySources, makeSearches } from './copy-sources.ts';
import { packSelection, type PackOptions } from './copy-files.ts';
import { SearchBudget } from './search-budget.ts';
import { compilePattern, selectFiles } from './select-files.ts';
import { StepScope } from './step-scope.ts';

const { signal } = new AbortController();
let directory = '';
let context: ContextFiles;
before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-copy-'));
  context = await makeContext('context', [
    { path: 'package.json', content: 'p', mode: 0o600 },
    { path: 'package-lock.json', content: 'l' },
    { path: 'src/' },
    { path: 'src/main.js', content: 'main' },
    { path: 'src/größe.txt', content: 'umlaut' },
    { path: 'src/inner', type: 'symlink', target: 'main.js' },
    { path: 'dangling', type: 'symlink', target: '/etc/passwd' },
    { path: 'to-file', type: 'symlink', target: './hop' },
    { path: 'hop', type: 'symlink', target: '../../src/main.js' },
    { path: 'to-directory', type: 'symlink', target: '/src' },
    { path: 'circle', type: 'symlink', target: 'circle' },
  ]);
});
after(() => rmSync(directory, { recursive: true, force: true }));

async function makeContext(name: string, files: Parameters<typeof writeTar>[1]): Promise<ContextFiles> {
  const path = join(directory, `${name}.tar`);
  await writeTar(path, files);
  return { path, index: await indexContext(path, signal) };
}

async function copied(source: string, how: PackOptions = {}): Promise<string> {
  const archive = await buffer(packSelection(context, await selectFiles(context.index, source, signal), how));
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

async function refused(source: string, pattern: RegExp): Promise<void> {
  await assert.rejects(selectFiles(context.index, source, signal), (error) => {
    assert(error instanceof AppError && error.code === 'build_failed', String(error));
    assert.match(error.message, pattern);
    return true;
  });
}

const SOURCES = '-rw-r--r-- main.js\n-rw-r--r-- größe.txt\nlrw-r--r-- inner -> main.js';

test('a file, the content of a directory, everything, and names with wildcards are copied', async () => {
  assert.equal(await copied('./package.json'), '-rw------- package.json');
  assert.equal(await copied('package.json', { name: 'other', mode: 0o755 }), '-rwxr-xr-x other');
  assert.equal(await copied('src/'), SOURCES);
  assert.equal(await copied('s*'), SOURCES);
  assert.equal(await copied('src/gr*.txt'), '-rw-r--r-- größe.txt');
  assert.equal(await copied('pack*.json'), '-rw------- package.json\n-rw-r--r-- package-lock.json');
  assert.equal((await copied('.')).split('\n').length, 11);
  await refused('absent', /the context has no "absent"; check/u);
  assert.equal(await copied('abs*'), '', 'a pattern may match nothing');
  assert.equal(
    await copied('../../package.json'),
    '-rw------- package.json',
    'no path leads out of the context',
  );
});

test('a source that is a link, or lies below one, is followed within the context; links in a directory stay links', async () => {
  assert.equal(await copied('to-file'), '-rw-r--r-- to-file', 'the file has the name of the link');
  assert.equal(await copied('to-f*'), '-rw-r--r-- to-file');
  assert.equal(await copied('to-directory'), SOURCES);
  assert.equal(await copied('to-directory/main.js'), '-rw-r--r-- main.js');
  assert.equal(await copied('to-directory/m*.js'), '-rw-r--r-- main.js');
  assert.equal(await copied('src/inner'), '-rw-r--r-- inner');
  await refused(
    'dangling',
    /no "dangling": a symbolic link leads to "etc\/passwd", which is not in the context/u,
  );
  await refused('dang*', /which is not in the context/u);
  await refused('circle', /lead in a circle/u);
});

test('links that name a large file very often are refused, and so are chains of links without an end in sight', async () => {
  const many = await makeContext('many', [
    { path: 'big', content: Buffer.alloc(2 << 20) },
    ...Array.from({ length: 600 }, (_, index) => ({
      path: `l${index}`,
      type: 'symlink' as const,
      target: 'big',
    })),
  ]);
  await assert.rejects(selectFiles(many.index, 'l*', signal), /its links lead to more than/u);
  const chain = await makeContext(
    'chain',
    Array.from({ length: 1000 }, (_, index) => ({
      path: `l${index}`,
      type: 'symlink' as const,
      target: `${'d/../'.repeat(600)}l${index === 0 ? 'x' : 0}`,
    })),
  );
  const begun = performance.now();
  await assert.rejects(selectFiles(chain.index, '*', signal), /too many others|not in the context/u);
  assert.ok(performance.now() - begun < 10_000);
});

test('a pattern with many stars ends at once', () => {
  const begun = performance.now();
  assert.equal(compilePattern(`${'*a'.repeat(2000)}b`)('a'.repeat(255)), false);
  const hostile = compilePattern(`${'*a'.repeat(100)}?b`);
  for (let round = 0; round < 10_000; round += 1) hostile('a'.repeat(255));
  assert.ok(performance.now() - begun < 2000);
});

test('stars and question marks match as a simple regular expression does', () => {
  const characters = fc.constantFrom('a', 'b', '.');
  const patterns = fc.array(fc.oneof(characters, fc.constantFrom('*', '?')), { maxLength: 8 });
  fc.assert(
    fc.property(patterns, fc.array(characters, { maxLength: 8 }), (parts, letters) => {
      const [pattern, name] = [parts.join(''), letters.join('')];
      const expression = pattern.replaceAll('.', '\\.').replaceAll('?', '.').replaceAll('*', '.*');
      assert.equal(
        compilePattern(pattern)(name),
        new RegExp(`^${expression}$`, 'u').test(name),
        `${pattern} ${name}`,
      );
    }),
    { seed: 3, numRuns: 5000 },
  );
});

test('a selection looks at its signal, and lets other work run meanwhile', async () => {
  const large = await makeContext(
    'entries',
    Array.from({ length: 20_000 }, (_, index) => ({ path: `${'a'.repeat(60)}${index}`, content: '' })),
  );
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 1);
  await selectFiles(large.index, '*a*a*a*a*', signal);
  clearInterval(timer);
  assert.ok(turns > 1, `${turns} turns`);
  const stop = AbortSignal.timeout(1);
  await assert.rejects(async () => {
    for (;;) await selectFiles(large.index, '*a*a*a*a*', stop);
  }, /timeout/u);
});

test('files that nobody reads are closed once the stream is destroyed', async () => {
  const large = await makeContext('unread', [{ path: 'large', content: Buffer.alloc(8 << 20) }]);
  const isOpen = (): boolean =>
    readdirSync('/proc/self/fd').some((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`) === large.path;
      } catch {
        return false;
      }
    });
  const content = packSelection(large, await selectFiles(large.index, 'large', signal), {});
  const until = performance.now() + 5000;
  while (!isOpen() && performance.now() < until) await delay(5);
  assert.equal(isOpen(), true);
  await delay(50);
  content.destroy();
  while (isOpen() && performance.now() < until) await delay(5);
  assert.equal(isOpen(), false);
});

test('a context that cannot be opened fails its reader, also if that reads later', async () => {
  const selection = await selectFiles(context.index, 'src', signal);
  const content = packSelection({ ...context, path: join(directory, 'absent') }, selection, {});
  await delay(50);
  assert.equal(content.destroyed, true);
  await assert.rejects(buffer(content));
});

test('a reader that holds what it has read gets the bytes of large files unchanged', async () => {
  const content = Buffer.alloc(5 << 20);
  for (let at = 0; at < content.length; at += 4) content.writeUInt32LE(at, at);
  const large = await makeContext('large', [{ path: 'large', content }]);
  const held: Buffer[] = [];
  for await (const chunk of packSelection(large, await selectFiles(large.index, 'large', signal), {})) {
    held.push(chunk as Buffer);
    await delay(5);
  }
  const unpacked = execFileSync('tar', ['-xOf', '-', 'large'], {
    input: Buffer.concat(held),
    maxBuffer: 2 * content.length,
  });
  assert.equal(unpacked.equals(content), true);
});

test('the searches of a build have a budget for all its sources', async () => {
  const budget = new SearchBudget(50_000);
  const search = async (source: string): Promise<void> => {
    for (let round = 0; round < 1000; round += 1) await selectFiles(context.index, source, signal, budget);
  };
  await assert.rejects(search('src/*'), /need too much searching in the context/u);
  await assert.rejects(selectFiles(context.index, 'src', signal, budget), /too much searching/u);
});

test('the searches of all builds take turns, two at once, and a small selection is searched once', async () => {
  const searches = makeSearches();
  const scope = new StepScope({ env: {}, user: '', workdir: '' }, undefined);
  const make = (organizationId: string): CopySources =>
    new CopySources({
      context,
      steps: [{ copy: { from_path: 'src', to: '/x' } }],
      organizationId,
      searches,
      signal,
    });
  const held = await Promise.all(['a', 'a'].map((owner) => searches.acquire(signal, owner)));
  const builds = ['a', 'b'].map(make);
  const order: string[] = [];
  const selecting = builds.map(async (copies, index) => {
    await copies.select(0, scope);
    order.push(index === 0 ? 'a' : 'b');
  });
  await delay(20);
  assert.deepEqual([searches.waiting, order], [2, []]);
  held[0]?.();
  await Promise.race(selecting);
  assert.deepEqual(order, ['b'], 'the organization with fewer searches is first');
  const [, second] = builds;
  await second?.select(0, scope);
  held[1]?.();
  await Promise.all(selecting);
  assert.equal(await second?.select(0, scope), await second?.select(0, scope));
});
