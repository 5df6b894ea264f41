import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import type { Sandbox } from '../../packages/sdk/src/index.ts';
import { connect, SMALL } from '../fixtures/api/client.ts';

const run = promisify(execFile);

async function bytesOf(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

describe('changes of files', () => {
  let sandbox: Sandbox;
  let directory: string;
  before(async () => {
    sandbox = await (await connect()).sandboxes.create(SMALL);
    directory = await mkdtemp(join(tmpdir(), 'coppice-files-'));
  });
  after(async () => {
    await sandbox.destroy();
    await rm(directory, { recursive: true });
  });
  const shell = async (command: string): Promise<string> => {
    const { stdout, stderr, exitCode } = await sandbox.exec(command, { user: 'root', timeout: 200 });
    assert.equal(exitCode, 0, stderr);
    return stdout;
  };

  it('describes files as the kernel does', async () => {
    await shell(
      'mkdir -p /tmp/s && cd /tmp/s && printf abc > f && chown 12:34 f && chmod 4710 f && ln -s f l',
    );
    const { mtime, ...file } = await sandbox.files.stat('/tmp/s/f');
    assert.deepEqual(file, {
      name: 'f',
      path: '/tmp/s/f',
      type: 'file',
      size: 3,
      mode: '4710',
      target: null,
      uid: 12,
      gid: 34,
      user: (await sandbox.exec("awk -F: '$3 == 12 { print $1 }' /etc/passwd")).stdout.trim() || null,
      group: (await sandbox.exec("awk -F: '$3 == 34 { print $1 }' /etc/group")).stdout.trim() || null,
    });
    assert.ok(Math.abs(Date.parse(mtime) - Date.now()) < 600_000, mtime);
    assert.equal((await sandbox.files.stat('/tmp/s/l')).target, 'f');
    assert.equal((await sandbox.files.stat('/')).type, 'dir');
    await assert.rejects(sandbox.files.stat('/tmp/s/none'), { status: 404, code: 'file_not_found' });
  });

  it('creates directories with mode and owner', async () => {
    const made = await sandbox.files.mkdir('/tmp/made/a/b', { mode: 0o2750, user: 'nobody' });
    assert.deepEqual([made.mode, made.user], ['2750', 'nobody']);
    assert.equal(await shell('stat -c "%U %a" /tmp/made /tmp/made/a/b'), 'nobody 755\nnobody 2750\n');
    await assert.rejects(sandbox.files.mkdir('/tmp/made/a/b', { parents: false }), {
      status: 409,
      code: 'already_exists',
    });
  });

  it('moves files, and replaces one only when told to', async () => {
    await shell('cd /tmp && echo one > m1 && echo two > m2');
    await assert.rejects(sandbox.files.move('/tmp/m1', '/tmp/m2'), { code: 'already_exists' });
    assert.equal(await sandbox.download('/tmp/m2'), 'two\n');
    assert.equal((await sandbox.files.move('/tmp/m1', '/tmp/m2', { overwrite: true })).path, '/tmp/m2');
    assert.equal(await sandbox.download('/tmp/m2'), 'one\n');
    await assert.rejects(sandbox.files.move('/tmp/m2', '/proc/m2'), { code: 'file_error' });
  });

  it('moves and removes files of the image', async () => {
    await shell('test -f /etc/passwd');
    await sandbox.files.move('/etc/passwd', '/etc/passwd.moved');
    await sandbox.files.move('/etc/passwd.moved', '/etc/passwd');
    await shell('cp -r /etc /tmp/etc');
    await sandbox.files.remove('/tmp/etc', { recursive: true });
    await assert.rejects(sandbox.files.stat('/tmp/etc'), { code: 'file_not_found' });
  });

  it('removes a tree and no target of a symlink', async () => {
    await shell(
      'mkdir -p /tmp/r/d /tmp/keep && touch /tmp/keep/f && ln -s /tmp/keep /tmp/r/l && cd /tmp/r/d && touch $(seq 2000)',
    );
    await assert.rejects(sandbox.files.remove('/tmp/r'), { code: 'file_error' });
    await sandbox.files.remove('/tmp/r', { recursive: true });
    assert.equal(await shell('ls -d /tmp/r 2>/dev/null; ls /tmp/keep'), 'f\n');
  });

  it('changes modes and owners of trees', async () => {
    await shell(
      'mkdir -p /tmp/c/d && touch /tmp/c/d/f /tmp/outside && chmod 600 /tmp/outside && ln -s /tmp/outside /tmp/c/l',
    );
    await sandbox.files.chmod('/tmp/c', 0o711, { recursive: true });
    await sandbox.files.chown('/tmp/c', 'nobody', { recursive: true });
    assert.equal(
      await shell('cd /tmp && stat -c "%n %U %a" c/d/f outside'),
      'c/d/f nobody 711\noutside root 600\n',
    );
  });

  it('survives names that are no text', async () => {
    await shell(`mkdir -p /tmp/names && cd /tmp/names && touch "$(printf 'a\\nb')" "$(printf '\\377')"`);
    assert.equal((await sandbox.files.stat('/tmp/names/a\nb')).name, 'a\nb');
    const archive = await bytesOf(await sandbox.files.downloadArchive('/tmp/names'));
    await sandbox.files.uploadArchive('/tmp/names2', archive);
    assert.equal(await shell('diff -r /tmp/names /tmp/names2 && ls /tmp/names2 | wc -l'), '3\n');
  });

  it('unpacks an archive of tar, and packs one that tar unpacks', async () => {
    const site = join(directory, 'site');
    await mkdir(join(site, 'deep/er'), { recursive: true });
    await writeFile(join(site, 'index.html'), '<html>', { mode: 0o640 });
    await writeFile(join(site, 'deep/er/large'), Buffer.alloc(3_000_000, 'xyz'));
    await symlink('../index.html', join(site, 'deep/link'));
    await run('tar', ['czf', join(directory, 'site.tar.gz'), '-C', site, '.']);
    const packed = await readFile(join(directory, 'site.tar.gz'));
    const unpacked = await sandbox.files.uploadArchive('/srv/site', packed, {
      format: 'tar.gz',
      user: 'nobody',
    });
    assert.deepEqual(unpacked, { path: '/srv/site', entries: 5, size: 3_000_006 });
    assert.equal(
      await shell('cd /srv/site && stat -c "%U %a" index.html && cat deep/link'),
      'nobody 640\n<html>',
    );
    for (const format of ['tar', 'tar.gz'] as const) {
      const back = join(directory, `back.${format}`);
      await writeFile(back, await bytesOf(await sandbox.files.downloadArchive('/srv/site', { format })));
      const target = join(directory, format);
      await mkdir(target);
      await run('tar', [format === 'tar' ? 'xf' : 'xzf', back, '-C', target, '--no-same-owner']);
      await run('diff', ['-r', site, target]);
    }
  });

  it('unpacks nothing outside of the directory', async () => {
    const evil = join(directory, 'evil');
    await mkdir(evil);
    await symlink('/tmp', join(evil, 'a'));
    await run('tar', ['cf', join(directory, 'evil.tar'), '-C', evil, 'a']);
    await rm(join(evil, 'a'));
    await mkdir(join(evil, 'a'));
    await writeFile(join(evil, 'a/escaped'), '');
    await run('tar', ['rf', join(directory, 'evil.tar'), '-C', evil, 'a/escaped']);
    const archive = await readFile(join(directory, 'evil.tar'));
    await assert.rejects(sandbox.files.uploadArchive('/srv/evil', archive), (error: Error) => {
      assert.match(error.message, /leads out of the directory.*1 entries/u);
      return true;
    });
    await assert.rejects(sandbox.files.stat('/tmp/escaped'), { code: 'file_not_found' });
  });

  it('packs no other file system', async () => {
    await shell(
      'mkdir -p /tmp/fs/other /tmp/fs/own && mount -t tmpfs none /tmp/fs/other && touch /tmp/fs/other/f /tmp/fs/own/f',
    );
    await writeFile(join(directory, 'fs.tar'), await bytesOf(await sandbox.files.downloadArchive('/tmp/fs')));
    const { stdout } = await run('tar', ['tf', join(directory, 'fs.tar')]);
    assert.deepEqual(stdout.trim().split('\n').sort(), ['other/', 'own/', 'own/f']);
  });

  it('serves links without the API key', async () => {
    await sandbox.upload('/tmp/linked', 'hello');
    const { url } = await sandbox.files.createLink('/tmp/linked');
    const response = await fetch(url);
    assert.deepEqual([response.status, await response.text()], [200, 'hello']);
    const upload = await sandbox.files.createLink('/tmp/new/by-link', { method: 'upload' });
    assert.equal((await fetch(upload.url, { method: 'PUT', body: 'written' })).status, 200);
    assert.equal(await shell('cat /tmp/new/by-link'), 'written');
    assert.equal((await fetch(upload.url)).status, 403);
  });

  it('reports changes below a directory', { timeout: 120_000 }, async () => {
    await shell('mkdir -p /tmp/w/d');
    const changes = await sandbox.files.watch('/tmp/w', { recursive: true });
    await shell(
      'cd /tmp/w && mkdir -p n/m && echo x > n/m/f && mv n/m/f d/g && rm d/g && cd / && rm -r /tmp/w',
    );
    const seen = new Set<string>();
    for await (const { type, path } of changes) seen.add(`${type} ${path}`);
    for (const event of ['created /tmp/w/n', 'created /tmp/w/n/m', 'removed /tmp/w/n', 'removed /tmp/w/d'])
      assert.ok(seen.has(event), `${event}: ${[...seen].join(', ')}`);
  });

  it('reports a rename with both paths', { timeout: 120_000 }, async () => {
    await shell('mkdir -p /tmp/w2/d && touch /tmp/w2/a');
    const changes = await sandbox.files.watch('/tmp/w2', { recursive: true });
    await sandbox.files.move('/tmp/w2/a', '/tmp/w2/d/b');
    for await (const event of changes) {
      assert.deepEqual(event, { type: 'renamed', path: '/tmp/w2/d/b', from: '/tmp/w2/a', directory: false });
      break;
    }
  });

  it('loses no change silently when nothing reads', { timeout: 300_000 }, async () => {
    // More events than fit into the kernel's queue, so that the client must have read some, or learn of a loss.
    await shell('mkdir -p /tmp/w3 && echo 1000 > /proc/sys/fs/inotify/max_queued_events');
    const changes = await sandbox.files.watch('/tmp/w3');
    await shell('cd /tmp/w3 && for i in 1 2; do touch $(seq 1000); rm $(seq 1000); done; rmdir /tmp/w3');
    let count = 0;
    let isLost = false;
    for await (const { type } of changes) {
      count += 1;
      isLost ||= type === 'lost';
    }
    assert.ok(isLost || count >= 4000, `${count} events`);
  });

  it('logs all of it', async () => {
    const events = new Set<string>();
    for await (const { event } of sandbox.audit()) events.add(event);
    for (const event of ['mkdir', 'move', 'remove', 'chmod', 'chown', 'upload', 'download'])
      assert.ok(events.has(`file.${event}`), event);
  });

  it('ends a watch with the state of the sandbox', { timeout: 120_000 }, async () => {
    await shell('mkdir -p /tmp/w4');
    const changes = await sandbox.files.watch('/tmp/w4');
    const ended = assert.rejects(changes.next(), { code: 'invalid_state' });
    await sandbox.hibernate();
    await ended;
    await sandbox.resume();
    assert.equal((await sandbox.files.stat('/tmp/w4')).type, 'dir');
  });
});
