import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { AppError } from '@coppice/contract';
import { layOutTar, type FileInTar } from '../testing/tar-of-files.ts';
import type { BuildLog } from './build-log.ts';
import { BuildSteps, writeCommand, type StepParts } from './build-steps.ts';
import { indexContext } from './context-index.ts';
import { CopySources, makeSearches } from './copy-sources.ts';
import { parseDockerfile } from './dockerfile.ts';
import type { PlannedStep } from './planned-step.ts';
import { StepScope } from './step-scope.ts';

interface Asked {
  path: string;
  user: string;
}

const directory = mkdtempSync(join(tmpdir(), 'coppice-steps-'));
after(() => rmSync(directory, { recursive: true, force: true }));

test('the files of a COPY are closed when the sandbox refuses them before it reads any', async () => {
  const path = join(directory, 'context.tar');
  writeFileSync(path, layOutTar([{ path: 'large', content: Buffer.alloc(8 << 20) }]));
  const { signal } = new AbortController();
  const context = { path, index: await indexContext(path, signal) };
  let content: Readable | undefined;
  const files = {
    stat: async () => {
      throw new AppError('file_not_found', 'absent');
    },
    makeDirectory: async () => assert.fail('no directory is made'),
    unpack: async (_: string, unpacking: { content: Readable }) => {
      content = unpacking.content;
      throw new AppError('unavailable', 'the sandbox cannot be reached');
    },
  } as unknown as StepParts['files'];
  const log = { step: async () => undefined } as unknown as BuildLog;
  const planned = [{ copy: { from_path: 'large', to: '/large' } }];
  const parts = {
    reach: { organizationId: 'org', onlyTeamId: null },
    sandboxId: 'run',
    commands: {} as StepParts['commands'],
    files,
    copies: new CopySources({
      context,
      steps: planned,
      organizationId: 'org',
      searches: makeSearches(),
      signal,
    }),
    limits: { runnerOutageDeadlineMs: 0 },
    log,
    signal,
    deadlineMs: performance.now() + 10_000,
  };
  const steps = new BuildSteps(parts, new StepScope({ env: {}, user: '', workdir: '' }, undefined));
  await assert.rejects(steps.apply(planned[0] ?? {}, 0), /cannot be reached/u);
  assert.equal(content?.destroyed, true);
});

test('a script is run by the program that its first line names, and may have any lines', () => {
  const script =
    '#!/usr/bin/env -S bash -e\n: <<\'X\'\nEND\nX\necho "${BASH_VERSION%%.*}" "it\'s"\necho "$0"';
  const output = execFileSync('/bin/sh', ['-c', writeCommand(script, true)], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  assert.match(output, /^\d it's\n\/dev\/shm\/coppice-step-\d+\n$/u);
  rmSync(output.split('\n')[1] ?? '', { force: true });
  assert.equal(writeCommand('#!/bin/x', false), '#!/bin/x');
  assert.equal(writeCommand(['a', "it's"], false), String.raw`exec 'a' 'it'\''s'`);
});

/** Applies steps, and returns what the sandbox is asked to make. */
async function asked(
  planned: PlannedStep[],
  {
    user = '',
    content = [{ path: 'a', content: 'x' }],
    outages = 0,
  }: { user?: string; content?: FileInTar[]; outages?: number } = {},
): Promise<Asked[]> {
  const path = join(directory, 'asked.tar');
  writeFileSync(path, layOutTar(content));
  const { signal } = new AbortController();
  const made: Asked[] = [];
  let left = outages;
  const answer = (): void => {
    left -= 1;
    if (left >= 0) throw new AppError('outcome_unknown', 'the runner restarts');
  };
  const files = {
    stat: async () => {
      answer();
      throw new AppError('file_not_found', 'absent');
    },
    makeDirectory: async (_: string, { path: to, user: owner }: Asked) => {
      answer();
      made.push({ path: to, user: owner });
    },
    unpack: async (_: string, { path: to, user: owner, content: archive }: Asked & { content: Readable }) => {
      await buffer(archive);
      answer();
      made.push({ path: to, user: owner });
    },
  } as unknown as StepParts['files'];
  const log = {
    step: async () => undefined,
    note: async (text: string) => void made.push({ path: text, user: 'note' }),
  } as unknown as BuildLog;
  const scope = new StepScope({ env: {}, user, workdir: '' }, '\\');
  const steps = new BuildSteps(
    {
      reach: { organizationId: 'org', onlyTeamId: null },
      sandboxId: 'run',
      commands: {} as StepParts['commands'],
      files,
      copies: new CopySources({
        context: { path, index: await indexContext(path, signal) },
        steps: planned,
        organizationId: 'org',
        searches: makeSearches(),
        signal,
      }),
      limits: { runnerOutageDeadlineMs: 10_000 },
      log,
      signal,
      deadlineMs: performance.now() + 10_000,
    },
    scope,
  );
  for (const [index, step] of planned.entries()) await steps.apply(step, index);
  return made;
}

test('the directory of a WORKDIR belongs to the user of the step, as in Docker', async () => {
  assert.deepEqual(
    await asked([
      { workdir: '/srv/a' },
      { user: 'app:web' },
      { workdir: 'b' },
      { user: '1000' },
      { workdir: 'c' },
    ]),
    [
      { path: '/srv/a', user: '0:0' },
      { path: '/srv/a/b', user: 'app:web' },
      { path: '/srv/a/b/c', user: '1000:1000' },
    ],
  );
  assert.deepEqual(await asked([{ workdir: '/w' }], { user: 'node' }), [{ path: '/w', user: 'node' }]);
});

test('an ADD of an archive is refused by its content, whatever its name', async () => {
  const contents = {
    'app.tar.gz': gzipSync('x'),
    bz: 'BZh91AY',
    xz: Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0]),
    zst: zstdCompressSync('x'),
    tar: layOutTar([{ path: 'in', content: 'x' }]),
    text: 'x'.repeat(600),
    zero: Buffer.alloc(1024),
    short: '',
  };
  const content = Object.entries(contents).map(([path, bytes]) => ({ path, content: bytes }));
  const add = async (source: string, to = '/opt/'): Promise<unknown> => {
    const { steps } = parseDockerfile(`FROM a:1\nARG ARCHIVE=tar\nADD ${source} ${to}`);
    return asked(steps, { content });
  };
  for (const [source, format] of [
    ['"app.tar.gz"', 'gzip'],
    ['app.*', 'gzip'],
    ['b?', 'bzip2'],
    ['xz', 'xz'],
    ['zst', 'zstd'],
    ['$ARCHIVE', 'tar'],
  ] as const)
    await assert.rejects(
      add(source),
      new RegExp(`ADD does not unpack .* is a ${format} file; use COPY`, 'u'),
    );
  for (const source of ['text', 'zero', 'short', '.']) await add(source);
  await asked(parseDockerfile('FROM a:1\nCOPY app.tar.gz /opt/').steps, { content });
});

test('an owner that is a number is the group, too, as in Docker', async () => {
  const owners = ['1000', '1000:0', 'app', undefined];
  const made = await asked(
    owners.map((owner) => ({ copy: { from_path: 'a', to: '/x/', ...(owner !== undefined && { owner }) } })),
  );
  assert.deepEqual(
    made.map(({ user }) => user),
    ['1000:1000', '1000:0', 'app', '0:0'],
  );
});

test('a pattern may match nothing if another source of its COPY names files', async () => {
  const content = ['package.json', 'yarn.lock'].map((path) => ({ path, content: path }));
  const copy = (line: string): Promise<Asked[]> =>
    asked(parseDockerfile(`FROM a:1\n${line}`).steps, { content });
  assert.deepEqual(await copy('COPY package.json npm-*.json ./'), [
    { path: '/', user: '0:0' },
    { path: 'nothing of the context matches npm-*.json', user: 'note' },
  ]);
  assert.equal((await copy('COPY a* yarn* b* ./')).length, 3);
  await assert.rejects(copy('COPY a* b* ./'), /the context has no "a\*"/u);
  await assert.rejects(copy('COPY a* ./\nCOPY yarn* ./'), /the context has no "a\*"/u);
  await assert.rejects(copy('COPY yarn.lock absent ./'), /the context has no "absent"/u);
});

test('COPY and WORKDIR are repeated while the runner restarts', async () => {
  for (const step of [{ copy: { from_path: 'a', to: '/x/' } }, { workdir: '/x' }])
    assert.equal((await asked([step], { outages: 2 }))[0]?.user, '0:0');
  assert.equal((await asked([{ copy: { from_path: 'a', to: '/x/b' } }], { outages: 1 }))[0]?.path, '/x');
});
