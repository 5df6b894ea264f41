/** What images may look like inside: each is pushed to a real registry, prepared, booted and asked for something. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import type { Api } from './fixtures/api.ts';
import type { LayerEntry } from './fixtures/oci-layout.ts';
import { shared } from './fixtures/shared.ts';
import { pushTinyImage } from './fixtures/tiny-image.ts';

/** A refusal is an answer, not something that was waited for. */
const QUICK_MS = 5000;
const BUSYBOX = execFileSync('sh', ['-c', 'command -v busybox'], { encoding: 'utf8' }).trim();
const APPLETS = ['sh', 'id', 'ls', 'cat', 'pwd', 'stat', 'env', 'readlink', 'test', 'grep'];

function busyboxEntries(): LayerEntry[] {
  return [
    { path: 'bin/busybox', content: readFileSync(BUSYBOX), mode: 0o755 },
    ...APPLETS.map((name): LayerEntry => ({ path: `bin/${name}`, type: 'symlink', target: '/bin/busybox' })),
  ];
}

interface Kind {
  entries?: readonly LayerEntry[];
  config?: Record<string, unknown>;
}

/** Pushes an image of busybox and what is given, and runs `use` in a sandbox of it. */
async function withImage(name: string, kind: Kind, use: (api: Api, id: string) => Promise<void>) {
  const entries = [...busyboxEntries(), ...(kind.entries ?? [])];
  await withBareImage(name, { ...kind, entries }, use);
}

async function withBareImage(name: string, kind: Kind, use: (api: Api, id: string) => Promise<void>) {
  const { api, registry } = await shared();
  const image = `kinds/${name}:1`;
  await pushTinyImage(registry, { name: image, ...kind });
  const { id } = await api.create({ image, mem_mib: 256 });
  try {
    await use(api, id);
  } finally {
    await api.destroy(id);
  }
}

/** The exec is refused at once, with that code, status 400 and words a stranger understands. */
async function assertRefused(api: Api, id: string, body: Record<string, unknown>, words: RegExp) {
  const started = performance.now();
  const answer = await api.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true', ...body } });
  const error = answer.body['error'] as Record<string, string>;
  assert.deepEqual([answer.status, error['code']], [400, 'invalid_image'], answer.text);
  assert.match(error['message'] ?? '', words);
  assert.ok(performance.now() - started < QUICK_MS);
}

async function assertFilesWork(api: Api, id: string) {
  const path = `/v1/runs/${id}/files`;
  const put = await api.call('POST', `${path}/upload?path=/new/file`, { raw: 'content' });
  assert.ok(put.status < 300, put.text);
  const got = await api.call('GET', `${path}/download?path=/new/file`);
  assert.deepEqual([got.status, got.text], [200, 'content']);
}

test('an image that is one static program runs, moves files and says that it has no shell', async () => {
  const entries: LayerEntry[] = [{ path: 'app', content: readFileSync(BUSYBOX), mode: 0o755 }];
  await withBareImage('static', { entries, config: { Entrypoint: ['/app'] } }, async (api, id) => {
    await assertRefused(api, id, {}, /no \/bin\/sh .*image with a shell/u);
    await assertFilesWork(api, id);
  });
});

test('a sandbox without a shell runs commands once one is uploaded', async () => {
  await withBareImage('bring-a-shell', {}, async (api, id) => {
    const raw = readFileSync(BUSYBOX);
    const put = await api.call('POST', `/v1/runs/${id}/files/upload?path=/bin/sh&mode=0755`, { raw });
    assert.ok(put.status < 300, put.text);
    assert.equal((await api.exec(id, 'echo here')).stdout, 'here\n');
  });
});

test('a /bin/sh that leads nowhere or is no program is refused by name', async () => {
  const shells: Record<string, LayerEntry> = {
    dangling: { path: 'bin/sh', type: 'symlink', target: '/bin/absent' },
    foreign: { path: 'bin/sh', content: '\x7fELF but nothing more', mode: 0o755 },
  };
  for (const [name, shell] of Object.entries(shells)) {
    await withBareImage(`shell-${name}`, { entries: [shell] }, async (api, id) => {
      await assertRefused(api, id, {}, /\/bin\/sh/u);
    });
  }
});

test('an image of busybox alone has all that a sandbox needs', async () => {
  await withImage('busybox', {}, async (api, id) => {
    const { stdout } = await api.exec(
      id,
      'id -u; pwd; echo x > /tmp/x && cat /tmp/x; cat /etc/hostname; ls /proc/self/fd',
    );
    assert.match(stdout, new RegExp(`^0\n/workspace\nx\n${id}\n0\n1\n2\n`, 'u'));
    await assertFilesWork(api, id);
  });
});

test('USER is a number, a name, or either with a group', async () => {
  const accounts: LayerEntry[] = [
    { path: 'etc/passwd', content: 'root:x:0:0::/root:/bin/sh\napp:x:1001:1002::/home/app:/bin/sh\n' },
    { path: 'etc/group', content: 'root:x:0:\napp:x:1002:\nstaff:x:50:app\n' },
  ];
  const expected: Record<string, string> = {
    '4321': '4321 0 0',
    app: '1001 1002 1002 50',
    '7:staff': '7 50 50',
  };
  for (const [index, [User, ids]] of Object.entries(expected).entries()) {
    await withImage(`user-${index}`, { entries: accounts, config: { User } }, async (api, id) => {
      const { stdout } = await api.exec(id, 'echo $(id -u) $(id -g) $(id -G)');
      assert.equal(stdout, `${ids}\n`, User);
    });
  }
});

test("a USER that the image does not have is refused as the image's fault and can be overridden", async () => {
  await withImage('user-absent', { config: { User: 'nobody-here' } }, async (api, id) => {
    await assertRefused(api, id, {}, /USER "nobody-here".*"user".*\/etc\/passwd/u);
    assert.equal((await api.exec(id, 'id -u', { user: '0' })).stdout, '0\n');
    await assertFilesWork(api, id);
  });
});

test('a WORKDIR that is missing is made, a relative one starts at the root, a file is refused', async () => {
  await withImage('workdir-missing', { config: { WorkingDir: '/srv/deep/down' } }, async (api, id) => {
    assert.equal((await api.exec(id, 'pwd')).stdout, '/srv/deep/down\n');
  });
  await withImage('workdir-relative', { config: { WorkingDir: 'srv/app' } }, async (api, id) => {
    assert.equal((await api.exec(id, 'pwd')).stdout, '/srv/app\n');
  });
  const entries = [{ path: 'srv', content: 'a file' }];
  await withImage('workdir-file', { entries, config: { WorkingDir: '/srv' } }, async (api, id) => {
    await assertRefused(api, id, {}, /\/srv is not a directory|working directory \/srv/u);
    assert.equal((await api.exec(id, 'pwd', { cwd: '/bin' })).stdout, '/bin\n');
  });
});

test('odd values of ENV arrive as they are', async () => {
  const values: Record<string, string> = {
    EMPTY: '',
    EQUALS: 'a=b=c',
    LINES: 'one\ntwo',
    QUOTES: `"'\\$HOME\``,
    UMLAUT: 'größe ✓',
    'odd.name-1': 'x',
    LONG: 'y'.repeat(60_000),
  };
  const config = { Env: ['PATH=/bin', ...Object.entries(values).map(([name, value]) => `${name}=${value}`)] };
  await withImage('env', { config }, async (api, id) => {
    const { stdout } = await api.exec(id, 'cat /proc/$$/environ');
    const found = new Map(
      stdout.split('\0').map((line) => [line.split('=', 1)[0], line.slice(line.indexOf('=') + 1)]),
    );
    for (const [name, value] of Object.entries(values)) assert.equal(found.get(name), value, name);
  });
});

test('links in the places of directories and files that every sandbox needs do no harm', async () => {
  const entries: LayerEntry[] = [
    { path: 'var/tmp/', mode: 0o1777 },
    { path: 'tmp', type: 'symlink', target: '/var/tmp' },
    { path: 'home', type: 'symlink', target: 'home' },
    { path: 'etc/resolv.conf', type: 'symlink', target: '../run/systemd/resolve/stub-resolv.conf' },
    { path: 'etc/hostname/', mode: 0o700 },
    { path: 'etc/hosts', type: 'symlink', target: '/etc/passwd' },
    { path: 'etc/passwd', content: 'root:x:0:0::/root:/bin/sh\n' },
    { path: 'run', type: 'symlink', target: '/var/tmp' },
    { path: 'dev', type: 'symlink', target: '/bin' },
    { path: 'proc', content: 'a file' },
    { path: 'sys/kernel/', mode: 0o000 },
  ];
  await withImage('links', { entries }, async (api, id) => {
    const look = [
      'readlink /tmp; echo x > /tmp/x && cat /var/tmp/x',
      'cat /etc/hostname; cat /etc/passwd; grep -c . /etc/hosts',
      'cat /etc/resolv.conf; test -c /dev/null && echo device; test -d /proc/self && echo proc',
    ];
    const { stdout, stderr } = await api.exec(id, `${look.join('; ')}; busybox ls -d /bin/busybox`);
    const lines = stdout.split('\n');
    assert.deepEqual(lines.slice(0, 2), ['/var/tmp', 'x'], stderr);
    assert.deepEqual(lines.slice(2, 4), [id, 'root:x:0:0::/root:/bin/sh']);
    assert.match(stdout, /nameserver 10\./u);
    assert.match(stdout, /device\nproc\n\/bin\/busybox\n$/u);
    await assertFilesWork(api, id);
  });
});

test('an image whose /etc is absent or a dangling link gets one', async () => {
  const kinds: Record<string, LayerEntry[]> = {
    absent: [{ path: '.wh.etc' }],
    link: [{ path: 'etc', type: 'symlink', target: '/private/etc' }],
  };
  for (const [name, extra] of Object.entries(kinds)) {
    const { api, registry } = await shared();
    const image = `kinds/etc-${name}:1`;
    // No file of ours in /etc: it must be as the case says.
    await pushTinyImage(registry, { name: image, entries: [...busyboxEntries(), ...extra], isBare: true });
    const { id } = await api.create({ image, mem_mib: 256 });
    assert.equal((await api.exec(id, 'cat /etc/hostname; id -u')).stdout, `${id}\n0\n`, name);
    await api.destroy(id);
  }
});

test("what the image has in /dev and /proc is hidden by the system's own, and its root keeps its mode", async () => {
  const entries: LayerEntry[] = [
    { path: './', mode: 0o1775, uid: 0, gid: 50 },
    { path: 'dev/null', content: 'a trap' },
    { path: 'dev/sda', type: 'block-device', deviceMajor: 8, deviceMinor: 0 },
    { path: 'proc/1/', mode: 0o700 },
    { path: 'proc/version', content: 'a lie' },
    { path: 'locked/', mode: 0o000 },
    { path: 'locked/file', content: 'inside', mode: 0o000 },
  ];
  await withImage('dev', { entries }, async (api, id) => {
    const { stdout } = await api.exec(
      id,
      'test -c /dev/null && cat /dev/null; ls /dev/sda; cat /proc/version /locked/file; stat -c "%a %g" /',
    );
    assert.match(stdout, /^Linux version [^\n]*\ninside1775 50\n$/u);
  });
});

test('a shell that never ends keeps no image from starting', async () => {
  const entries: LayerEntry[] = [
    { path: 'bin/busybox', content: readFileSync(BUSYBOX), mode: 0o755 },
    { path: 'bin/sh', content: '#!/bin/busybox yes\n', mode: 0o755 },
  ];
  await withBareImage('endless', { entries }, async (api, id) => {
    const answer = await api.exec(id, 'anything', { timeout: 1 });
    assert.deepEqual([answer.timed_out, answer.exit_code], [true, 124]);
    await assertFilesWork(api, id);
  });
});
