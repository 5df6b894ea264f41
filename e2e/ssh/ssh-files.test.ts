/** Files over SSH with the programs of this machine: scp in both protocols, sftp, rsync and git. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { shared as openShared } from '../fixtures/service/shared.ts';
import { pushSshImage, USER } from '../fixtures/ssh/ssh-image.ts';
import { SshUser } from '../fixtures/ssh/ssh-user.ts';

const MIB = 1 << 20;
const LARGE_MIB = 12;

describe('files over SSH', () => {
  let shared: Awaited<ReturnType<typeof openShared>>;
  let person: SshUser;
  let id = '';
  let host = '';
  before(async () => {
    shared = await openShared();
    const image = await pushSshImage(shared.registry);
    ({ id } = await shared.api.create({ image, mem_mib: 512, timeout: 0 }));
    host = `${id}.coppice`;
    person = new SshUser();
    await person.login(shared.service.address);
  });
  after(async () => {
    person[Symbol.dispose]();
    await shared.api.destroy(id);
  });

  const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
  const hashThere = async (path: string): Promise<string> =>
    (await person.read(host, `sha256sum ${path}`)).split(' ')[0] ?? '';
  /** Copies with scp. Throws if it fails. */
  const scp = async (...args: string[]): Promise<void> => {
    const { code, stderr } = await person.run('scp', ['-q', ...args]);
    assert.equal(code, 0, stderr);
  };

  for (const [protocol, option] of [
    ['SFTP', '-s'],
    ['the old protocol', '-O'],
  ] as const)
    test(`scp keeps every byte, modes and times of a large file both ways, with ${protocol}`, async () => {
      const bytes = randomBytes(LARGE_MIB * MIB);
      writeFileSync(person.local('large'), bytes);
      chmodSync(person.local('large'), 0o750);
      await scp(option, '-p', person.local('large'), `${host}:/tmp/large${option}`);
      assert.equal(await hashThere(`/tmp/large${option}`), sha256(bytes));
      assert.equal(
        await person.read(host, `stat -c '%a %Y' /tmp/large${option}`),
        `750 ${Math.floor(statSync(person.local('large')).mtimeMs / 1000)}`,
      );
      await scp(option, `${host}:/tmp/large${option}`, person.local('back'));
      assert.equal(sha256(readFileSync(person.local('back'))), sha256(bytes));
      await person.read(host, `rm /tmp/large${option}`);
      rmSync(person.local('back'));
    });

  test('scp copies a tree, and a relative path begins in the directory of the sandbox', async () => {
    mkdirSync(person.local('tree', 'deep'), { recursive: true });
    writeFileSync(person.local('tree', 'deep', 'a b'), 'text');
    await scp('-r', person.local('tree'), `${host}:`);
    assert.equal(await person.read(host, `cat "$PWD/tree/deep/a b"`), 'text');
    await scp('-r', `${host}:tree`, person.local('tree-back'));
    assert.equal(readFileSync(person.local('tree-back', 'deep', 'a b'), 'utf8'), 'text');
  });

  test('sftp lists, renames, links and removes', async () => {
    await person.read(host, 'mkdir -p /tmp/sftp');
    const batch =
      'cd /tmp/sftp\nput one.txt\nrename one.txt two.txt\nln -s two.txt link\nmkdir d\nls -1\nrm link\nrmdir d\nls -1\n';
    writeFileSync(person.local('one.txt'), 'one');
    const { code, stdout, stderr } = await person.run('sftp', ['-q', '-b', '-', host], batch);
    assert.equal(code, 0, stderr);
    assert.deepEqual(
      stdout.split('\n').filter((line) => line !== '' && !line.startsWith('sftp>')),
      ['d', 'link', 'two.txt', 'two.txt'],
    );
  });

  test('files are read and written with the rights of the user', async () => {
    writeFileSync(person.local('mine'), 'mine');
    await scp(person.local('mine'), `${USER}@${host}:/tmp/mine`);
    assert.equal(await person.read(host, 'stat -c %U:%G /tmp/mine'), `${USER}:${USER}`);
    for (const option of ['-s', '-O']) {
      const { code, stderr } = await person.run('scp', [
        option,
        `${USER}@${host}:/etc/shadow`,
        person.local('shadow'),
      ]);
      assert.notEqual(code, 0);
      assert.match(stderr, /Permission denied/u);
      assert.equal(existsSync(person.local('shadow')), false);
    }
    const written = await person.run('scp', [person.local('mine'), `${USER}@${host}:/etc/mine`]);
    assert.notEqual(written.code, 0);
    assert.equal(await person.read(`${USER}@${host}`, 'id -un; id -G'), `${USER}\n1000`);
  });

  test('rsync copies a tree, then only what has changed, and deletes', async () => {
    mkdirSync(person.local('src', 'deep'), { recursive: true });
    writeFileSync(person.local('src', 'deep', 'big'), randomBytes(8 * MIB));
    writeFileSync(person.local('src', 'gone'), 'x');
    await person.call('rsync', '-a', `${person.local('src')}/`, `${host}:/tmp/rsync/`);
    assert.equal(
      await hashThere('/tmp/rsync/deep/big'),
      sha256(readFileSync(person.local('src', 'deep', 'big'))),
    );
    rmSync(person.local('src', 'gone'));
    writeFileSync(person.local('src', 'new'), 'y');
    const stats = await person.call(
      'rsync',
      '-a',
      '--delete',
      '--stats',
      `${person.local('src')}/`,
      `${host}:/tmp/rsync/`,
    );
    assert.match(stats, /Number of regular files transferred: 1\n/u);
    assert.equal(await person.read(host, 'ls /tmp/rsync'), 'deep\nnew');
    await person.call('rsync', '-a', `${host}:/tmp/rsync/`, person.local('rsync-back'));
    assert.deepEqual(
      readFileSync(person.local('rsync-back', 'deep', 'big')),
      readFileSync(person.local('src', 'deep', 'big')),
    );
  });

  test('git clones, pushes and fetches', async () => {
    await person.read(host, 'git init -q --bare -b main /tmp/project.git');
    const clone = person.local('clone');
    await person.call('git', 'clone', '-q', `${host}:/tmp/project.git`, clone);
    writeFileSync(person.local('clone', 'blob'), randomBytes(4 * MIB));
    await person.call('git', '-C', clone, 'add', 'blob');
    await person.call('git', '-C', clone, 'commit', '-q', '-m', 'first');
    await person.call('git', '-C', clone, 'push', '-q', 'origin', 'HEAD:main');
    const head = await person.call('git', '-C', clone, 'rev-parse', 'HEAD');
    assert.equal(await person.read(host, 'git -C /tmp/project.git rev-parse main'), head);
    assert.match(await person.read(host, 'git -C /tmp/project.git fsck 2>&1; echo $?'), /0$/u);
    await person.call('git', 'clone', '-q', `ssh://${host}/tmp/project.git`, person.local('second'));
    assert.deepEqual(
      readFileSync(person.local('second', 'blob')),
      readFileSync(person.local('clone', 'blob')),
    );
  });
});
