import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { lstatSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { join, posix } from 'node:path';
import { test } from 'node:test';
import {
  errorBody,
  LoopbackServer,
  SANDBOX_ID,
  sendJson,
  type Handler,
} from '../../../sdk/src/testing/loopback-server.ts';
import { answerSandbox, CliUser, until } from '../testing/cli-process.ts';

interface GuestFile {
  type: 'file' | 'dir' | 'symlink';
  mode?: string;
  target?: string;
  content?: string;
}

function describeFile(path: string, { type, mode = '0644', target = '' }: GuestFile): object {
  const name = path.split('/').at(-1);
  return {
    name,
    path,
    type,
    mode,
    size: 1,
    mtime: '2026-11-21T06:30:00.000Z',
    target: target === '' ? null : target,
    uid: 0,
    gid: 0,
    user: 'root',
    group: 'root',
  };
}

/** Answers as the service does for the files of a sandbox. */
function answerFiles(files: ReadonlyMap<string, GuestFile>): Handler {
  return answerSandbox(({ url }, response) => {
    const { pathname, searchParams } = new URL(url, 'http://service');
    const path = posix.normalize(searchParams.get('path') ?? '');
    const found = files.get(path);
    if (found === undefined) {
      const body = errorBody('file_not_found', `${path}: no such file`);
      return sendJson(response, { status: 404, body });
    }
    if (pathname.endsWith('/stat')) return sendJson(response, { body: describeFile(path, found) });
    if (pathname.endsWith('/download')) return void response.end(found.content ?? 'content');
    const below = [...files].filter(([name]) => name.slice(0, name.lastIndexOf('/')) === path);
    return sendJson(response, { body: below.map(([name, file]) => describeFile(name, file)) });
  });
}

const serve = (files: Record<string, GuestFile>): Promise<LoopbackServer> =>
  LoopbackServer.start(answerFiles(new Map(Object.entries(files))));

test('a download is as open to other users as the umask allows, whatever the guest says', async () => {
  await using server = await serve({
    '/dir': { type: 'dir' },
    '/dir/wide': { type: 'file', mode: '0777' },
    '/dir/link': { type: 'symlink', mode: '0777', target: 'wide' },
  });
  using user = new CliUser(server.url);
  const { stdout, stderr } = await user.runBash(
    `umask 027; coppice cp ${SANDBOX_ID}:/dir/wide wide; coppice cp ${SANDBOX_ID}:/dir/link link; ` +
      `umask 077; coppice cp ${SANDBOX_ID}:/dir tree; stat -c %a wide link tree/wide`,
  );
  assert.equal(stdout, '750\n640\n700\n', stderr);
});

test('a file of a large directory is found without the list of it', async () => {
  await using server = await serve({ '/dir': { type: 'dir' }, '/dir/f': { type: 'file', content: 'new' } });
  using user = new CliUser(server.url);
  const { code, stderr } = await user.run(['cp', `${SANDBOX_ID}:/dir/f`, 'f']);
  assert.equal(code, 0, stderr);
  assert.equal(readFileSync(join(user.home, 'f'), 'utf8'), 'new');
  const paths = server.seen.map(({ url }) => url.split('?')[0]);
  assert.ok(!paths.includes(`/v1/runs/${SANDBOX_ID}/files`), paths.join(' '));
});

test('a signal ends a copy whose list does not end, also the first Ctrl-C', async () => {
  const page = Array.from({ length: 10 }, (_, index) =>
    describeFile(`/dir/d${index}`, { type: 'symlink', target: '/x' }),
  );
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    let pages = 0;
    await using server = await LoopbackServer.start(
      answerSandbox(({ url }, response) => {
        if (url.includes('/stat?'))
          return sendJson(response, { body: describeFile('/dir', { type: 'dir' }) });
        pages += 1;
        const headers = { link: `<http://x/?path=%2Fdir&after=${pages}>; rel="next"` };
        return sendJson(response, { body: page, headers });
      }),
    );
    using user = new CliUser(server.url);
    const running = user.start('cp', `${SANDBOX_ID}:/dir`, 'copy');
    await until('some pages', () => pages > 5);
    running.child.kill(signal);
    assert.equal((await running.result()).code, signal === 'SIGINT' ? 130 : 143);
  }
});

test('a failure ends the other files, and no half of one stays', async () => {
  let begun = 0;
  const files = ['a', 'b', 'c'].map((name) => describeFile(`/dir/${name}`, { type: 'file' }));
  await using server = await LoopbackServer.start(
    answerSandbox(async ({ url }, response) => {
      if (url.includes('/stat?')) return sendJson(response, { body: describeFile('/dir', { type: 'dir' }) });
      if (!url.includes('/download?')) {
        // The hostile last name ends the copy, once the others are being written.
        if (!url.includes('after=')) {
          const headers = { link: '<http://x/?path=%2Fdir&after=c>; rel="next"' };
          return sendJson(response, { body: files, headers });
        }
        await until('the downloads', () => begun === files.length);
        return sendJson(response, {
          body: [{ ...describeFile('/dir/x', { type: 'file' }), name: '../x' }],
        });
      }
      response.writeHead(200, { 'content-type': 'application/octet-stream' });
      response.write('begun');
      begun += 1;
    }),
  );
  using user = new CliUser(server.url);
  const { code, stderr } = await user.run(['cp', `${SANDBOX_ID}:/dir`, 'copy']);
  assert.equal(code, 1);
  assert.match(stderr, /^coppice: .*"\.\.\/x".*nothing more is copied\n$/u);
  assert.deepEqual(readdirSync(join(user.home, 'copy')), []);
});

test('a pipe and an open file are not replaced by a file', async () => {
  await using server = await serve({
    '/f': { type: 'file' },
    '/d': { type: 'dir' },
    '/d/pipe': { type: 'file' },
  });
  using user = new CliUser(server.url);
  const local = (name: string): string => join(user.home, name);
  mkdirSync(local('out'));
  execFileSync('mkfifo', [local('out/pipe')]);
  for (const args of [
    [`${SANDBOX_ID}:/f`, 'out/pipe'],
    [`${SANDBOX_ID}:/d/.`, 'out'],
    // As /dev/stdout, but harmless if it is not refused.
    [`${SANDBOX_ID}:/f`, '/proc/self/fd/1'],
  ]) {
    const { code, stderr } = await user.run(['cp', ...args]);
    assert.equal(code, 1);
    assert.match(stderr, /is neither a file nor a link, and is not replaced: copy to "-"/u);
  }
  assert.ok(statSync(local('out/pipe')).isFIFO());
  symlinkSync('pipe', local('out/link'));
  assert.equal((await user.run(['cp', `${SANDBOX_ID}:/f`, 'out/link'])).code, 0);
  assert.ok(lstatSync(local('out/link')).isFile());
});

test('a link of the sandbox does not replace a directory, and the message says so', async () => {
  await using server = await serve({
    '/d': { type: 'dir' },
    '/d/sub': { type: 'dir' },
    '/d/to': { type: 'symlink', target: 'sub' },
  });
  using user = new CliUser(server.url);
  mkdirSync(join(user.home, 'out', 'to'), { recursive: true });
  const { code, stderr } = await user.run(['cp', `${SANDBOX_ID}:/d/.`, 'out']);
  assert.equal(code, 1);
  assert.match(stderr, /out\/to is a directory, and the sandbox has a link of this name: remove it/u);
});

test('a name of the greatest length is copied', async () => {
  const name = '字'.repeat(85);
  await using server = await serve({ '/d': { type: 'dir' }, [`/d/${name}`]: { type: 'file' } });
  using user = new CliUser(server.url);
  const { code, stderr } = await user.run(['cp', `${SANDBOX_ID}:/d`, 'copy']);
  assert.equal(code, 0, stderr);
  assert.deepEqual(readdirSync(join(user.home, 'copy')), [name]);
});

test('JSON of a copy has no character that controls a terminal, and is the same document', async () => {
  const name = 'a\u009b31m\u202e\u061c\u200f\u007f';
  await using server = await serve({ [`/${name}`]: { type: 'file' } });
  using user = new CliUser(server.url);
  const { stdout } = await user.run(['cp', '--json', `${SANDBOX_ID}:/${name}`, name]);
  // oxlint-disable-next-line no-control-regex
  assert.doesNotMatch(stdout, /[\u007f-\u009f\u202e\u061c\u200f]/u);
  assert.equal((JSON.parse(stdout) as { path: string }).path, name);
});
