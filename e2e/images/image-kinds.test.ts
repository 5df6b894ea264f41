/**
 * Unusual image contents. Each image is pushed to a real registry, prepared and booted, and a test uses its sandbox.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import {
  assertFilesWork,
  assertRefused,
  busyboxEntries,
  BUSYBOX,
  withBareImage,
  withImage,
} from '../fixtures/images/image-kind.ts';
import type { LayerEntry } from '../fixtures/images/oci-layout.ts';
import { shared } from '../fixtures/service/shared.ts';
import { pushTinyImage } from '../fixtures/images/tiny-image.ts';

test('an image of one static program runs, serves files, and says that it has no shell', async () => {
  const entries: LayerEntry[] = [{ path: 'app', content: readFileSync(BUSYBOX), mode: 0o755 }];
  await withBareImage('static', { entries, config: { Entrypoint: ['/app'] } }, async (api, id) => {
    await assertRefused(api, id, {}, /no \/bin\/sh .*image with a shell/u);
    await assertFilesWork(api, id);
  });
});

test('a sandbox without a shell runs commands after a shell is uploaded', async () => {
  await withBareImage('bring-a-shell', {}, async (api, id) => {
    const raw = readFileSync(BUSYBOX);
    const put = await api.call('POST', `/v1/runs/${id}/files/upload?path=/bin/sh&mode=0755`, { raw });
    assert.ok(put.status < 300, put.text);
    assert.equal((await api.exec(id, 'echo here')).stdout, 'here\n');
  });
});

test('a /bin/sh that is a dangling link or no program is refused, and the answer names it', async () => {
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

test('an image of busybox alone has everything that a sandbox needs', async () => {
  await withImage('busybox', {}, async (api, id) => {
    const { stdout } = await api.exec(
      id,
      'id -u; pwd; echo x > /tmp/x && cat /tmp/x; cat /etc/hostname; ls /proc/self/fd',
    );
    assert.match(stdout, new RegExp(`^0\n/workspace\nx\n${id}\n0\n1\n2\n`, 'u'));
    await assertFilesWork(api, id);
  });
});

test('links in place of the directories and files that every sandbox needs do no harm', async () => {
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

test('an image whose /etc is absent or a dangling link gets an /etc', async () => {
  const kinds: Record<string, LayerEntry[]> = {
    absent: [{ path: '.wh.etc' }],
    link: [{ path: 'etc', type: 'symlink', target: '/private/etc' }],
  };
  for (const [name, extra] of Object.entries(kinds)) {
    const { api, registry } = await shared();
    const image = `kinds/etc-${name}:1`;
    // Without the test's label in /etc, which must be as the case says.
    await pushTinyImage(registry, { name: image, entries: [...busyboxEntries(), ...extra], isBare: true });
    const { id } = await api.create({ image, mem_mib: 256 });
    assert.equal((await api.exec(id, 'cat /etc/hostname; id -u')).stdout, `${id}\n0\n`, name);
    await api.destroy(id);
  }
});

test("the system's /dev and /proc hide those of the image, and its root directory keeps its mode", async () => {
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

test('a shell that never ends does not keep an image from starting', async () => {
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
